"""Sinks and sources of message brokers, with real brokers and the clients of other people."""
