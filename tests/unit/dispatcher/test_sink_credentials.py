"""Credentials of sinks at the dispatcher: sealed, found again, kept, shared, replicated and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from corekit import Core, core

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Scope
from dispatcher.config import Settings
from dispatcher.servers import upkeep
from dispatcher.store import directory
from dispatcher.subscriptions.requests import Change, NewSubscription
from dispatcher.subscriptions.sinks import Sink
from edn.errors import Conflict, InvalidSink
from edn.formats import sink_settings
from edn.formats.sink_settings import ApiKey, Basic, Bearer
from edn.http.sink_policy import HTTP_REFUSED

URL = "https://hooks.example.org/in"
OLD, NEW = "0d" * 32, "4e" * 32


def caller() -> Caller:
    return Caller("", "me", "", frozenset(Scope))


def scenario(folder: Path, work: Callable[[Core], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with core(folder, **options) as made:
            await made.put("t")
            made.network.topics.remember(made.topics.get("t"))
            await work(made)

    asyncio.run(main())


async def subscribe(core: Core, id: str, **sink: Any) -> dict[str, Any]:
    request = NewSubscription(topic="t", id=id, sink=Sink(**{"url": URL, **sink}))
    content, _, _ = await core.network.requests.subscribe(request, caller())
    shown: dict[str, Any] = content
    return shown


def settings_id(core: Core, id: str) -> str:
    found = directory.find(core.log._reader, id)
    assert found is not None
    return sink_settings.decode(found.settings).id


def test_equal_settings_have_one_id_and_others_another(tmp_path: Path) -> None:
    async def work(core: Core) -> None:
        sinks: list[dict[str, Any]] = [
            {"credentials": Bearer("a")},
            {"credentials": Bearer("a")},
            {"credentials": Bearer("b")},
            {"credentials": Basic("a", "a")},
            {"headers": {"x": "1", "y": "2"}},
            {"headers": {"Y": "2", "X": "1"}},
            {"ordered": False},
            {"rate": 5.0},
        ]
        for number, sink in enumerate(sinks):
            await subscribe(core, f"s{number}", **sink)
        ids = [settings_id(core, f"s{number}") for number in range(len(sinks))]
        assert ids[0] == ids[1]
        assert ids[4] == ids[5]
        assert len(set(ids)) == 6
        await subscribe(core, "plain")
        assert settings_id(core, "plain") == ""
        # Servers get them in the request that stores the subscription.
        [(_, item)] = [pair for pair in core.servers.items if pair[1].id == "s0"]
        assert sink_settings.decode(item.settings).id == ids[0]

    scenario(tmp_path, work)


def test_no_credential_is_on_disk_in_clear(tmp_path: Path) -> None:
    async def work(core: Core) -> None:
        await subscribe(core, "s", credentials=Basic("ann", "a very secret password"))
        stored = directory.find(core.log._reader, "s")
        assert stored is not None
        plain = directory.read_credentials(core.log._reader, [stored.settings])
        assert "a very secret password" in plain[settings_id(core, "s")]

    scenario(tmp_path, work)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"a very secret password" not in file.read_bytes()


def test_a_repeated_request_is_recognised_after_the_keys_were_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = {"credentials": Bearer("a"), "headers": {"x": "1"}}
    ids = []

    async def first(core: Core) -> None:
        await subscribe(core, "s", **sink)
        ids.append(settings_id(core, "s"))

    async def second(core: Core) -> None:
        await subscribe(core, "s", **sink)
        ids.append(settings_id(core, "s"))
        with pytest.raises(Conflict):
            await subscribe(core, "s", **{**sink, "credentials": Bearer("b")})

    (tmp_path / "keys").write_text(OLD)
    (tmp_path / "keys").chmod(0o600)
    made = Settings
    monkeypatch.setattr("corekit.Settings", lambda **given: made(**given, secret_key_file=tmp_path / "keys"))
    scenario(tmp_path / "data", first)
    (tmp_path / "keys").write_text(f"{NEW}\n{OLD}")
    scenario(tmp_path / "data", second)
    assert ids[0] == ids[1]


def test_a_change_keeps_credentials_for_the_same_url_only(tmp_path: Path) -> None:
    async def work(core: Core) -> None:
        await subscribe(core, "s", credentials=ApiKey("X-Key", "sesame"))
        requests = core.network.requests

        async def change(**sink: Any) -> dict[str, Any]:
            given = Sink(**{"url": URL, "kept_credentials": "api_key", **sink})
            return await requests.change("s", Change(sink=given), caller())

        shown = await change(rate=5.0)
        assert (shown["sink"]["credentials"], shown["sink"]["rate"]) == ({"type": "api_key"}, 5.0)
        shown = await change(format="cloudevents-batch")
        assert shown["sink"]["credentials"] == {"type": "api_key"}
        with pytest.raises(InvalidSink, match="given again") as refused:
            await change(url="https://thief.example.org/")
        assert refused.value.pointer == "/sink/credentials"
        with pytest.raises(InvalidSink, match="none that could be kept"):
            await change(kept_credentials="bearer")
        with pytest.raises(InvalidSink, match="together with credentials"):
            await change(headers={"x-key": "mine"})

    scenario(tmp_path, work)


def test_credentials_need_tls(tmp_path: Path) -> None:
    async def work(core: Core) -> None:
        for url in ("http://hooks.example.org/", "http://10.0.0.1/"):
            with pytest.raises(InvalidSink) as refused:
                await subscribe(core, "s", url=url, credentials=Bearer("a"))
            assert refused.value.pointer == "/sink/url"
            assert refused.value.detail == HTTP_REFUSED or "must be public" in refused.value.detail

    scenario(tmp_path, work)


def test_credentials_are_forgotten_after_their_last_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CREDENTIALS_SECONDS", -3600.0)

    def stored(core: Core) -> int:
        (count,) = core.log._reader.execute("SELECT count(*) FROM credentials").fetchone()
        return int(count)

    async def work(core: Core) -> None:
        await subscribe(core, "a", credentials=Bearer("x"))
        await subscribe(core, "b", credentials=Bearer("x"))
        await subscribe(core, "c", credentials=Bearer("y"))
        assert stored(core) == 2
        for id, left in (("a", 2), ("b", 1), ("c", 0)):
            await core.subscriptions.delete(id)
            await core.network.upkeep._forget_credentials()
            assert stored(core) == left

    scenario(tmp_path, work)
