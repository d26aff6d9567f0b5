"""Sequences as subscriptions: their requests, and their topics."""
