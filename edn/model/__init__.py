"""The language of events and filters: schema, event, filter, XPath, topic names, coordinates, rectangles.

Pure: no network, no disk, no clock. May import `edn.errors` and `edn.formats`.
"""
