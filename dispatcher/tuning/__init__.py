"""Tunes the precision of the summaries while the network runs.

May import `routing`, `servers` and `store`.
"""
