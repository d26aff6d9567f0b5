"""Regular expressions of the operator `matches`, in the syntax of RE2.

RE2 needs time linear in the text, whatever the expression; Python's `re` can take for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import re2

#: characters of an expression, and steps of its compiled form
MAX_EXPRESSION = 1_000
MAX_STEPS = 1_500
#: bytes of the compiled form with its cache
_MEMORY = 1 << 20


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    return options


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> re2._Regexp[str]:
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(
            f"a regular expression of at most {MAX_EXPRESSION} characters, got {len(expression)}"
        )
    try:
        found = re2.compile(expression, _options())
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"a regular expression in the syntax of RE2: {text}") from None
    if found.programsize > MAX_STEPS:
        raise ValueError(
            f"a regular expression of at most {MAX_STEPS} steps, got {found.programsize}: "
            "shorten its repetitions"
        )
    return found


def steps(expression: str) -> int:
    """Counts the steps of an expression, each of which may be taken at every byte; raises ValueError."""
    return int(_compiled(expression).programsize)


def searcher(expression: str) -> Callable[[str], bool]:
    """Returns the test whether an expression matches a part of a text; raises ValueError."""
    search = _compiled(expression).search
    return lambda text: search(text) is not None
