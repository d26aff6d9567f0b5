"""The resolver: cached, shared, bounded per tenant, and never blocked by a name server that is silent."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import uvloop

from edn.runtime.process import CannotStart
from edn_server.config import Settings
from edn_server.sinks import resolver as module
from edn_server.sinks.resolver import Resolver, Unresolved


class Names:
    """Answers from a table; names that it does not hold hang until they are released."""

    def __init__(self, **table: tuple[list[str], float]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.released = asyncio.Event()

    async def lookup(self, name: str) -> tuple[list[str], float]:
        self.asked.append(name)
        if name not in self.table:
            await self.released.wait()
            raise OSError("no such name")
        return self.table[name]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_answer_is_cached_for_its_ttl_within_bounds() -> None:
    async def main() -> None:
        names = Names(short=(["8.8.8.8"], 0.0), middle=(["8.8.8.8"], 10.0), long=(["8.8.8.8"], 86_400.0))
        clock = [0.0]
        resolver = Resolver(lookup=names.lookup, monotonic=lambda: clock[0])
        for clock[0] in (0.0, 0.9, 1.0, 9.9, 10.0, 19.9, 29.9, 30.0):
            for name in ("short", "middle", "long"):
                assert await resolver.resolve(name, "") == ("8.8.8.8",)
        # short: at 0, 1, 9.9, 19.9 and 29.9; middle: at 0, 10 and 29.9; long: at 0 and 30
        assert [names.asked.count(name) for name in ("short", "middle", "long")] == [5, 3, 2]
        await resolver.close()

    asyncio.run(main())


def test_a_failure_is_cached_for_a_few_seconds() -> None:
    async def main() -> None:
        names = Names(nothing=([], 3600.0))
        names.released.set()
        clock = [0.0]
        resolver = Resolver(lookup=names.lookup, monotonic=lambda: clock[0])
        for name in ("nothing", "missing"):
            for clock[0] in (0.0, 4.9):
                with pytest.raises(Unresolved, match=name):
                    await resolver.resolve(name, "")
            assert names.asked.count(name) == 1
            clock[0] = 5.0
            with pytest.raises(Unresolved):
                await resolver.resolve(name, "")
            assert names.asked.count(name) == 2
            clock[0] = 0.0
        await resolver.close()

    asyncio.run(main())


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES", 3)

    async def main() -> None:
        names = Names(**{f"n{number}": (["8.8.8.8"], 30.0) for number in range(9)})
        resolver = Resolver(lookup=names.lookup)
        for number in range(9):
            await resolver.resolve(f"n{number}", "")
            await resolver.resolve("n0", "")  # it is used, so it stays
        assert len(resolver._cache) == 3
        assert names.asked.count("n0") == 1
        await resolver.close()

    asyncio.run(main())


def test_names_that_are_never_answered_delay_no_other_tenant_and_few_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOKUPS", 10)

    async def main() -> None:
        names = Names(healthy=(["8.8.8.8"], 30.0), cached=(["8.8.4.4"], 30.0))
        resolver = Resolver(lookup=names.lookup)
        await resolver.resolve("cached", "noisy")
        hanging = [asyncio.create_task(resolver.resolve(f"dead{n}", "noisy")) for n in range(100)]
        await settle()
        assert len(names.asked) == 1 + 10
        assert await resolver.resolve("healthy", "quiet") == ("8.8.8.8",)
        assert await resolver.resolve("cached", "noisy") == ("8.8.4.4",)
        names.released.set()
        outcomes = await asyncio.gather(*hanging, return_exceptions=True)
        assert all(isinstance(outcome, Unresolved) for outcome in outcomes)
        assert not resolver._bounds
        assert not resolver._in_flight
        await resolver.close()

    asyncio.run(main())


def test_one_name_is_looked_up_once_and_goes_on_when_the_first_who_asked_gives_up() -> None:
    async def main() -> None:
        names = Names()
        resolver = Resolver(lookup=names.lookup)
        first, second = (asyncio.create_task(resolver.resolve("Name.", "a")) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        names.table["name"] = (["8.8.8.8"], 1.0)
        names.released.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(Unresolved):
            await second
        assert names.asked == ["name"]
        await resolver.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a" * 300, "ä.example", "a..b", ""])
def test_a_name_that_cannot_be_asked_for_has_no_address(name: str) -> None:
    async def main() -> None:
        resolver = Resolver(["127.0.0.1:1"])
        with pytest.raises(Unresolved):
            await resolver.resolve(name, "")
        await resolver.close()

    asyncio.run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_silent_name_server_neither_blocks_the_loop_nor_other_names(run: object) -> None:
    """A real resolver and a real socket that never answers; /etc/hosts is read meanwhile."""

    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            resolver = Resolver([f"127.0.0.1:{silent.getsockname()[1]}"])
            dead = [asyncio.create_task(resolver.resolve(f"n{n}.example.org", "noisy")) for n in range(100)]
            await settle()
            found = await resolver.resolve("localhost", "noisy")
            assert {"127.0.0.1", "::1"} & set(found)
            assert not any(task.done() for task in dead)
            for task in dead:
                task.cancel()
            await asyncio.gather(*dead, return_exceptions=True)
            await resolver.close()

    assert callable(run)
    run(main())


def parsed(folder: Path, nameservers: str) -> Settings:
    (folder / "secret").write_text("a secret of the tests")
    flags = ["--id", "s1", "--data", str(folder), "--dispatcher", "http://127.0.0.1:1"]
    flags += ["--secret-file", str(folder / "secret")]
    return Settings.load(flags, {"EDN_SERVER_NAMESERVERS": nameservers})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("127.0.0.1", ("127.0.0.1",)),
        ("127.0.0.1:5353, 9.9.9.9", ("127.0.0.1:5353", "9.9.9.9")),
        ("2620:fe::fe", ("2620:fe::fe",)),
    ],
)
def test_name_servers_are_a_setting(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert parsed(tmp_path, text).nameservers == expected


@pytest.mark.parametrize("text", ["dns.example", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:99999", "1.2.3"])
def test_a_name_server_that_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CannotStart, match="--nameservers must be IP addresses"):
        parsed(tmp_path, text)
