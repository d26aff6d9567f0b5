"""Answers of the REST interface: services build them, the client decodes them.

    topics, subscriptions, events, delivery, servers, routes, keys, tuning, repartitions, explain
    fields      marks of fields for the OpenAPI document; building and encoding answers
    document    the same models for pydantic, so that FastAPI documents and checks answers; services only

The models are frozen msgspec structs. A `Full` model adds fields that services send and the client ignores.
Except for `document`, this package imports only msgspec, so that the client is fast to import. Request bodies
are pydantic models beside their routes.
"""
