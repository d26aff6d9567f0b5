"""Benchmarks of single parts, each a command of its own, and the seeded workloads that they share.

Nothing outside this package imports it, but tests and the command line.
"""
