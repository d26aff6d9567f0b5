"""The caller of a request as a parameter of a route."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from dispatcher.auth.access import caller_of
from dispatcher.auth.caller import Caller


def _caller(connection: HTTPConnection) -> Caller:
    return caller_of(connection.scope)


Who = Annotated[Caller, Depends(_caller)]
