"""Bytes from anywhere against the parsers: `make fuzz`. What is found becomes a case of an ordinary test."""
