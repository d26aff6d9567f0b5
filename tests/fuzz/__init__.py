"""Bytes from anywhere against the parsers: `make fuzz`, and briefly the tests.

An input that is found to break something is mended, and becomes a file in `corpus/`, which the tests replay.
"""
