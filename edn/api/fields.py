"""Marks of fields for the OpenAPI document.

A field is required in the document unless it is `Sometimes`, whatever its default in Python. The client
decodes the type A of `Annotated[A, B]`, and the document shows B: `Annotated[str, Literal["a", "b"]]` is an
enumeration in the document, but any string for the client, which so accepts values of newer versions.
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

#: never null in an answer; None only in objects that a program builds
Always = Annotated[T | None, Mark.ALWAYS]
#: omitted in an answer without a value for it
Sometimes = Annotated[T | None, Mark.SOMETIMES]


class Field(NamedTuple):
    name: str
    #: name in JSON
    key: str
    #: annotation, with marks
    hint: Any
    is_required: bool


@functools.cache
def fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Returns the fields of a model; cached, because reading annotations is slow."""
    hints = get_type_hints(struct, include_extras=True)
    return tuple(
        Field(name, key, hints[name], Mark.SOMETIMES not in getattr(hints[name], "__metadata__", ()))
        for name, key in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    )


def fill(struct: type[Answer], source: object, **given: Any) -> Answer:
    """Builds an answer from `given`, and from the attributes of `source` for all other fields."""
    names = [name for name in struct.__struct_fields__ if name not in given]
    return struct(**{name: getattr(source, name) for name in names}, **given)


def show(answer: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of an answer as they are sent, without empty `Sometimes` fields."""
    values = [(field, getattr(answer, field.name)) for field in fields(type(answer))]
    return {field.key: value for field, value in values if field.is_required or value is not None}
