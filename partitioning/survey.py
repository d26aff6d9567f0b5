"""Surveys a partitioning in one pass: size, bounding rectangle and events of each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edn.arrays import Ints, Words
from partitioning.contents import Contents
from partitioning.rows import Chunk, Rows


class Assignment(Protocol):
    """A partitioning, as a function of the row alone; small enough to be sent to the rows."""

    def parts(self, chunk: Chunk) -> Ints:
        """Return the part of each row, -1 for none."""
        ...


@dataclass(frozen=True, slots=True)
class Present:
    def parts(self, chunk: Chunk) -> Ints:
        return chunk.server.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Relabelled:
    """A partitioning with renumbered parts; several may become one."""

    assignment: Assignment
    labels: Ints

    def parts(self, chunk: Chunk) -> Ints:
        return self.labels[self.assignment.parts(chunk)]


@dataclass(frozen=True, slots=True)
class Part:
    count: int
    content: Words
    #: rows of it on each present server; the last number is those without a server
    present: Ints


@dataclass(frozen=True, slots=True)
class _Survey:
    assignment: Assignment
    contents: Contents
    parts: int
    servers: int

    def gather(self, chunks: Iterable[Chunk]) -> Iterator[tuple[int, Part]]:
        contents = self.contents.blank(self.parts)
        present = np.zeros((self.parts, self.servers + 1), dtype=np.int64)
        for chunk in chunks:
            parts = self.assignment.parts(chunk)
            if self.contents.width:
                self.contents.scatter(parts[:, None], self.contents.of(chunk), contents)
            held = parts >= 0
            np.add.at(present, (parts[held], chunk.server[held]), 1)
        for part in range(self.parts):
            count = int(present[part].sum())
            if count:
                yield part, Part(count, contents[part], present[part])

    def conclude(self, subject: int, partials: Sequence[Part]) -> Part:
        content = self.contents.blank()
        for one in partials:
            self.contents.merge(content, one.content)
        present: Ints = np.sum([one.present for one in partials], axis=0)
        return Part(sum(one.count for one in partials), content, present)


def survey(rows: Rows, assignment: Assignment, contents: Contents, parts: int) -> list[Part]:
    """Return all parts, also empty ones."""
    servers = len(rows.servers)
    found = rows.ask(_Survey(assignment, contents, parts, servers))
    empty = Part(0, contents.blank(), np.zeros(servers + 1, dtype=np.int64))
    return [found.get(part, empty) for part in range(parts)]
