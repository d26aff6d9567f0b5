"""External formats: strict JSON, XML, SOAP, CloudEvents, webhook signatures, trace context.

Without I/O. May import `edn.errors`.
"""
