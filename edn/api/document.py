"""Converts the models of `edn.api` to pydantic models, with which FastAPI documents and checks answers.

A route declares its answer as `response_model=document(Topic)`. It may return the struct or a dictionary.
"""

from __future__ import annotations

import functools
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, create_model, model_validator

from edn.api.delivery import DeadLetter, ListedDeadLetter
from edn.api.fields import Mark, fields, show
from edn.api.keys import Key
from edn.api.repartitions import FullRepartition, Proposal, Repartitions
from edn.api.routes import Binding, Route, Routes
from edn.api.servers import FullServer
from edn.api.tuning import FullTuning

#: names of schemas that differ from the names of the classes
_NAMES: dict[type[msgspec.Struct], str] = {
    Binding: "BindingView",
    DeadLetter: "WholeDeadLetter",
    FullRepartition: "Repartition",
    FullServer: "Server",
    FullTuning: "Tuning",
    Key: "KeyView",
    ListedDeadLetter: "DeadLetter",
    Proposal: "ProposalView",
    Repartitions: "RepartitionList",
    Route: "RouteView",
    Routes: "RouteList",
}


class _Model(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return show(given) if isinstance(given, msgspec.Struct) else given


@functools.cache
def _model(struct: type[msgspec.Struct]) -> type[BaseModel]:
    declared: dict[str, Any] = {
        field.key: (document(field.hint), ... if field.is_required else None) for field in fields(struct)
    }
    name = _NAMES.get(struct, struct.__name__)
    return create_model(
        name, __base__=_Model, __doc__=struct.__doc__, __module__=struct.__module__, **declared
    )


def document(hint: Any) -> Any:
    """Returns the pydantic type of an answer, a union of answers, or the annotation of a field."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        documented = [mark for mark in marks if not isinstance(mark, Mark)]
        if documented:
            return document(documented[0])
        if Mark.ALWAYS in marks:
            return Union[tuple(document(one) for one in get_args(inner) if one is not NoneType)]  # noqa: UP007
        return document(inner)
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(document, get_args(hint)))]  # noqa: UP007  of a tuple, only this can be made
    if get_origin(hint) in (list, dict):
        return get_origin(hint)[tuple(map(document, get_args(hint)))]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _model(hint)
    return hint
