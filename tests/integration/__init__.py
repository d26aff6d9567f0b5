"""Real processes: what was acknowledged is delivered, exactly once."""
