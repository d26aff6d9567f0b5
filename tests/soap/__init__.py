"""SOAP: a hand-written client and sink, conversations with clients that others wrote, hostile XML."""
