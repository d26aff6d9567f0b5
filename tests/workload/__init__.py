"""Seeded schemas, filters and events: one seed, one workload, on every machine.

`adversarial` aims at the corners of the model (bounds that touch, values that doubles cannot tell apart,
attributes named like operators); `quotes` is a plausible market whose number of matches is under control.
Both draw JSON, never objects of the product.
"""
