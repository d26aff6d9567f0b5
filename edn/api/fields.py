"""Marks that say how a field of an answer appears in the OpenAPI document.

A field is required in the document unless it is `Sometimes`, whatever its default in Python. The client
decodes the type A of `Annotated[A, B]`, and the document shows B. So `Annotated[str, Literal["a", "b"]]` is
an enumeration in the document and any string to the client, which can read values that a newer network adds.
"""

from __future__ import annotations

import functools
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

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


class Field(NamedTuple):
    name: str
    #: its name in JSON
    key: str
    #: its annotation, with marks
    hint: Any
    is_required: bool


@functools.cache
def fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of a model. Cached: msgspec reads the annotations again at every call."""
    hints = get_type_hints(struct, include_extras=True)
    return tuple(
        Field(name, key, hints[name], Mark.SOMETIMES not in getattr(hints[name], "__metadata__", ()))
        for name, key in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    )


def fill(struct: type[Answer], source: object, **given: Any) -> Answer:
    """Build an answer from the attributes of `source` that have the names of its fields; `given` wins."""
    names = [name for name in struct.__struct_fields__ if name not in given]
    return struct(**{name: getattr(source, name) for name in names}, **given)


def show(answer: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of an answer as they are sent, without `Sometimes` ones that have no value."""
    values = [(field, getattr(answer, field.name)) for field in fields(type(answer))]
    return {field.key: value for field, value in values if field.is_required or value is not None}
