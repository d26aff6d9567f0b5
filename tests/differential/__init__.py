"""Compares the notifications of a real network with an independent matcher, over HTTP only.

A seed draws topics, filters, changes and events with hostile values (`plan`). `run` sends them to a network
of real processes and collects what a sink receives. `judge` compares (subscription, event) pairs with those
that `tests.oracle` computes: missing, extra, delivered twice, delivered with other values.

Nothing here imports the product. `python -m tests.differential --seed N` replays a run.
"""
