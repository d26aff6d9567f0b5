"""Input that no client should send, to every route."""
