"""Checks the licence of every package against the lists in pyproject.toml (`tool.audit`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from license_expression import ExpressionError, LicenseSymbol, LicenseWithExceptionSymbol, get_spdx_licensing

_SPDX = get_spdx_licensing()
#: say nothing about which licence it is
_EMPTY = frozenset({"License :: OSI Approved", "License :: DFSG approved"})
#: older packages name their licence by a classifier or a word
_WORDS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "License :: OSI Approved :: Zope Public License": "ZPL-2.1",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "New BSD": "BSD-3-Clause",
    "MIT License": "MIT",
    "MPLv2.0": "MPL-2.0",
}


def declared(name: str) -> list[str]:
    """What a package says of its licence: the expression, or else classifiers, or else the word."""
    found = metadata.metadata(name)
    if expression := found.get("License-Expression"):
        return [expression]
    classifiers = [one for one in found.get_all("Classifier") or () if one.startswith("License ::")]
    told = [_WORDS.get(one, one) for one in classifiers if one not in _EMPTY]
    if told:
        return told
    word = (found.get("License") or "").strip()
    return [_WORDS.get(word, word)] if word and "\n" not in word else []


def is_allowed(expression: str, allowed: frozenset[str]) -> bool | None:
    """Whether an SPDX expression can be met with these licences; None if it is no such expression."""
    try:
        tree = _SPDX.parse(expression, validate=True)
    except ExpressionError:
        return None
    return None if tree is None else _holds(tree, allowed)


def _holds(tree: Any, allowed: frozenset[str]) -> bool:
    if isinstance(tree, LicenseWithExceptionSymbol):
        # An exception permits more than its licence does.
        return tree.license_symbol.key in allowed
    if isinstance(tree, LicenseSymbol):
        return tree.key in allowed
    parts = [_holds(part, allowed) for part in tree.args]
    return any(parts) if tree.operator.strip() == "OR" else all(parts)


def check(names: Sequence[str], allowed: frozenset[str], known: Mapping[str, str]) -> list[str]:
    """What is wrong, package by package; `known` are those whose metadata says nothing or not enough."""
    wrong = []
    for name in sorted(names):
        told = [known[name]] if name in known else declared(name)
        if not told:
            wrong.append(f"{name}: licence unknown; name it in tool.audit.known after reading its source")
        for expression in told:
            verdict = is_allowed(expression, allowed)
            if verdict is None:
                wrong.append(f'{name}: "{expression}" is no SPDX expression; name it in tool.audit.known')
            elif not verdict:
                wrong.append(f"{name}: {expression} is not among the allowed licences")
    return wrong
