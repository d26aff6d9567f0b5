"""Limits that estimates of XPaths share with whoever budgets them; without lxml."""

#: bytes of text in an event: those of a whole request
TEXT = 1 << 20
