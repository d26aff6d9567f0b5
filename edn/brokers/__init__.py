"""Connections to message brokers, for sinks and sources: AMQP 0-9-1, MQTT 5 and NATS JetStream.

    messages     what is published and received, and the errors
    link         resolves a broker's name, checks its addresses, makes TLS contexts, loads a library
    amqp, mqtt, nats   one broker each: a `Publisher` and a `Consumer`
    opening      finds the module of a URL

The libraries are extras of the distribution, so these modules import them when the first connection opens.
May import `edn.formats`, `edn.http` and `edn.runtime`.
"""
