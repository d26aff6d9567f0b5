"""The fuzz targets on their seeds, on what is kept in `corpus`, and briefly on mutations of both: what `make
fuzz` does for longer, and guided by coverage. An input that it finds is mended, and becomes a file there.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from edn.formats import strict_json
from tests.fuzz import __main__ as command
from tests.fuzz import targets
from tests.fuzz.inputs import inputs_of

#: of each target
ROUNDS = {"soap": 800, "xpath": 800, "server": 120}
OTHER_ROUNDS = 1_500


def mutated(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(changed))
        match chance.randrange(5):
            case 0:
                changed[place : place + chance.randint(1, 12)] = b""
            case 1:
                changed[place:place] = bytes(chance.choices(range(256), k=chance.randint(1, 4)))
            case 2:
                other = chance.choice(others)
                begin = chance.randrange(len(other))
                changed[place:place] = other[begin : begin + chance.randint(1, 40)]
            case 3:
                changed[place:place] = changed[place : place + chance.randint(1, 60)]
            case 4:
                changed[place:place] = chance.choice(
                    [b"<", b">", b"&#0;", b"]]>", b"'", b"[", b"(", b"//", b":", b'"', b"{", b"\\u0000", b"-"]
                )
    return bytes(changed)


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_whatever_comes_is_taken_or_refused(name: str) -> None:
    target, known = targets.TARGETS[name], inputs_of(name)
    assert len(known) > len(targets.SEEDS[name]), "nothing is in its corpus"
    for one in known:
        target(one)
    chance = random.Random(7)
    for _ in range(ROUNDS.get(name, OTHER_ROUNDS)):
        target(mutated(chance, chance.choice(known), known))


def test_a_parser_that_has_lost_a_check_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that forgets that keys may stand twice takes the last of them, as the standard library does, but
    one that forgets an entry, or fails in another way than by refusing, does not pass."""
    monkeypatch.setattr(strict_json, "decode", lambda body: {})
    with pytest.raises(targets.WrongError):
        targets.json_body(b'{"price": 1}')

    def fails(body: bytes) -> object:
        raise KeyError(body)

    monkeypatch.setattr(strict_json, "decode", fails)
    for name in ("json", "filter", "dialects"):
        with pytest.raises(KeyError):
            targets.TARGETS[name](b'{"price": 1}')


def test_make_fuzz_and_its_command_know_every_target() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    [listed] = re.findall(r"for target in ([a-z ]+); do .*tests\.fuzz", makefile)
    assert sorted(listed.split()) == sorted(command.TARGETS) == sorted(targets.TARGETS)
