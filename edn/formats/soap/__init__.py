"""SOAP as both sides speak it: what the dispatcher answers, and what a server sends to a sink.

    envelope     SOAP 1.1 and 1.2: reading and writing messages, faults
    addressing   WS-Addressing: endpoint references and message headers, in its two namespaces
    eventing     WS-Eventing: one logic, two vocabularies (2004/08 and 2011/03)
    address      the sink of a SOAP subscriber as one address, `soap:?to=…`

Nothing here knows a network, a disk or a subscription. XML is read by `edn.formats.xml` only.
"""
