"""Runtime parts that both services share: threads, files and connections, and nothing of their domains."""
