"""Sealed secrets: which keys the processes have, and which keys stored secrets need."""

from __future__ import annotations

import msgspec


class SealedStore(msgspec.Struct, frozen=True):
    """The stored secrets of one process."""

    #: "dispatcher", or the id of a server
    process: str
    #: ids of its keys; the first one seals
    keys: list[str] = []
    #: number of stored secrets by the id of their key
    sealed: dict[str, int] = {}
    #: number of secrets that this call sealed again
    resealed: int = 0
    #: number of secrets that are not sealed with the first key
    left: int = 0
    #: why the process did not answer
    failure: str | None = None


class SealedSecrets(msgspec.Struct, frozen=True):
    processes: list[SealedStore]
    #: sums of all processes that answered
    resealed: int
    left: int
    #: whether every process answered and nothing is left: keys but the first of each process can be removed
    done: bool
