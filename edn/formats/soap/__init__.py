"""SOAP, for the dispatcher's answers and the messages of servers to sinks.

    envelope     messages and faults of SOAP 1.1 and 1.2
    addressing   WS-Addressing: endpoint references and headers, in two editions
    eventing     WS-Eventing: names in two editions (2004/08 and 2011/03)
    address      the sink of a SOAP subscriber as one URL, `soap:?to=…`

Without I/O. Only `edn.formats.xml` parses XML.
"""
