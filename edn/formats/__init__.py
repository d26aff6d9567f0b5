"""Formats of the outside world: strict JSON, XML, SOAP, CloudEvents, webhook signatures, trace context.

Reads and writes bytes; no network, no disk. May import `edn.errors`.
"""
