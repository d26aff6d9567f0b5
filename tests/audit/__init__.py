"""Audits the locked dependencies: a bill of materials, licences, known vulnerabilities.

`make audit`. The first two need no network. The last asks PyPI's database; where that cannot be reached the
audit says so and does not count it as a success or a failure.
"""
