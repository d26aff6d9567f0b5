"""Marks that say how a field of an answer appears in the OpenAPI document.

A field is required in the document unless it is `Sometimes`, whatever its default in Python. The client
decodes the type A of `Annotated[A, B]`, and the document shows B. So `Annotated[str, Literal["a", "b"]]` is
an enumeration in the document and any string to the client, which can read values that a newer network adds.
"""

from __future__ import annotations

import functools
from enum import Enum
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec


class Mark(Enum):
    ALWAYS = "always"
    SOMETIMES = "sometimes"


T = TypeVar("T")
Answer = TypeVar("Answer", bound=msgspec.Struct)

#: never null in an answer; None only in an object that a program builds itself
Always = Annotated[T | None, Mark.ALWAYS]
#: left out of an answer that has no value for it
Sometimes = Annotated[T | None, Mark.SOMETIMES]


@functools.cache
def hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the annotation of each field, with its marks."""
    return get_type_hints(struct, include_extras=True)


def has_mark(hint: Any, mark: Mark) -> bool:
    return mark in getattr(hint, "__metadata__", ())


def fill(struct: type[Answer], source: object, **given: Any) -> Answer:
    """Build an answer from the attributes of `source` that have the names of its fields; `given` wins."""
    names = [name for name in struct.__struct_fields__ if name not in given]
    return struct(**{name: getattr(source, name) for name in names}, **given)


def show(answer: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of an answer as they are sent, without `Sometimes` ones that have no value."""
    marked = hints(type(answer))
    sent = {one.encode_name: (one.name, getattr(answer, one.name)) for one in msgspec.structs.fields(answer)}
    return {
        key: value
        for key, (name, value) in sent.items()
        if value is not None or not has_mark(marked[name], Mark.SOMETIMES)
    }
