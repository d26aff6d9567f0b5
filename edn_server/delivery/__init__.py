"""Delivers the rows of sinks: one worker per address, retries, circuit breaker, dead letters.

May import `sinks`, `outbox`, `subscriptions` and `storage`.
"""
