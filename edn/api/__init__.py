"""Answers of the REST interface, each declared once: services build them, the client decodes them.

    topics, subscriptions, events, delivery, servers, routes, keys, tuning, repartitions, explain
    fields      marks that say how a field appears in the OpenAPI document; filling and showing answers
    document    the models for pydantic, by which FastAPI documents and checks answers; services only

The models are frozen msgspec structs. A `Full` model adds fields that the services send and the client leaves
out. Apart from `document`, nothing here imports more than msgspec: the client must be light to import.
Request bodies are pydantic models beside their routes.
"""
