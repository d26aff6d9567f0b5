"""Subscriptions that are read instead of posted, with other people's clients."""
