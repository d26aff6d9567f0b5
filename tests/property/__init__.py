"""Generated cases against the oracle."""
