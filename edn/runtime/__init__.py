"""Process plumbing that both services share. Knows nothing of events, topics or subscriptions."""
