"""Judges sequences: whether complete ones, and only these, were notified."""
