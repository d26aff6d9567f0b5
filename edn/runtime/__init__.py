"""Runs a service process: HTTP, settings, threads, files, clock. Knows nothing of events or subscriptions."""
