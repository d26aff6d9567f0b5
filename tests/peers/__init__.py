"""Programs that other people wrote for a standard, from their packages, unmodified."""
