"""Advertisements over the interface, on both engines: life cycle, enforcement, dead subscriptions, wanted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import dispatcher.app
from dispatcher.advertisements.guard import PublicationGuard
from dispatcher.config import Settings
from dispatcher.services import Services
from edn.runtime.postgres.database import Database
from tests.soap.messages import envelope
from tests.unit.dispatcher.corekit import Servers, make_ready

SECRET = "s" * 24
ATTRIBUTES = {"what": "string", "level": "integer", "username": "string", "at.city": "string"}


@dataclass
class Door:
    """A dispatcher without servers of its own, and the operator's client."""

    http: httpx.AsyncClient
    parts: Services

    async def topic(self, advertising: str = "off", **more: Any) -> dict[str, Any]:
        body = {"attributes": ATTRIBUTES, "advertising": advertising, **more}
        return await self.ok("PUT", "/v1/topics/t", json=body)

    async def advertise(self, given: Any, **more: Any) -> httpx.Response:
        return await self.http.post("/v1/advertisements", json={"topic": "t", "advertisement": given, **more})

    async def publish(self, events: Any, **more: Any) -> httpx.Response:
        return await self.http.post("/v1/topics/t/events", json=events, **more)

    async def subscribe(self, id: str, filter: Any) -> dict[str, Any]:
        body = {"topic": "t", "id": id, "filter": filter}
        return await self.ok("POST", "/v1/subscriptions", json=body)

    async def ok(self, method: str, path: str, **more: Any) -> Any:
        answer = await self.http.request(method, path, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def key(self, name: str, *scopes: str, tenant: str = "acme") -> dict[str, str]:
        made = await self.ok("POST", "/v1/keys", json={"name": name, "scopes": scopes, "tenant": tenant})
        return {"authorization": f"Bearer {made['key']}"}


Work = Callable[[Door], Awaitable[None]]


@asynccontextmanager
async def opened(place: Path | Database, **settings: Any) -> AsyncIterator[Door]:
    if isinstance(place, Database):
        settings |= {
            "database": place.url,
            "database_schema": place.schema,
            "allow_single_database": True,
            "secret_keys": "00" * 32,
        }
    else:
        settings["data"] = place
    app = dispatcher.app.create_app(Settings(secret=SECRET, allow_loopback_sinks=True, **settings))
    parts: Services = app.state.services
    parts.calls.store = Servers().store  # type: ignore[method-assign]  # stores whatever it is given
    make_ready(parts, "s1")
    # A summary without rectangles: only widenings route.
    parts.table.accept("s1", 1, 0, {})
    async with (
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://localhost",
            headers={"authorization": f"Bearer {SECRET}"},
        ) as http,
        app.router.lifespan_context(app),
    ):
        yield Door(http, parts)


def run(place: Path | Database, work: Work, **settings: Any) -> None:
    async def main() -> None:
        async with opened(place, **settings) as door:
            await work(door)

    asyncio.run(main())


def test_an_advertisement_is_created_read_changed_listed_and_deleted(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        given = {"what": ["alarm"], "level": [{"gt": 3, "lt": 7}]}
        made = await door.advertise(given, id="a1", expires="P1D")
        assert made.status_code == 201
        assert made.headers["location"] == "/v1/advertisements/a1"
        shown = made.json()
        assert shown["publisher"] == "network"
        assert (shown["topic"], shown["advertisement"]) == ("t", given)
        assert shown["wanted"] is False
        assert (await door.ok("GET", "/v1/advertisements/a1"))["subscriptions"] == 0
        assert (await door.advertise(given, id="a1")).status_code == 200
        assert (await door.advertise({"what": ["x"]}, id="a1")).status_code == 409
        await door.advertise({"$others": "any"}, id="a2", publisher="ann")
        listed = await door.ok("GET", "/v1/advertisements?topic=t&limit=1")
        assert [one["id"] for one in listed["advertisements"]] == ["a1"]
        rest = await door.ok("GET", f"/v1/advertisements?topic=t&limit=1&cursor={listed['next']}")
        assert [one["id"] for one in rest["advertisements"]] == ["a2"]
        assert rest["next"] is None
        only = await door.ok("GET", "/v1/advertisements?publisher=ann")
        assert [one["id"] for one in only["advertisements"]] == ["a2"]
        changed = await door.ok("PUT", "/v1/advertisements/a1", json={"advertisement": {"what": "any"}})
        assert changed["advertisement"] == {"what": "any"}
        assert changed["expires"] is None
        assert await door.ok("GET", "/v1/advertisements/a1") == {**changed, "subscriptions": 0}
        await door.ok("DELETE", "/v1/advertisements/a1")
        assert (await door.http.get("/v1/advertisements/a1")).status_code == 404
        assert (await door.http.delete("/v1/advertisements/a1")).status_code == 404

    run(place, work)


def test_unadvertising_by_covering_ends_what_is_covered_and_nothing_else(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        await door.advertise({"level": [{"gt": 10}]}, id="narrow")
        await door.advertise({"level": [{"gt": 0}]}, id="wide")
        await door.advertise({"what": ["alarm"]}, id="other")
        await door.advertise({"level": [{"gt": 20}]}, id="anns", publisher="ann")

        async def end(given: Any, **more: str) -> list[str]:
            parameters = {"topic": "t", "advertisement": json.dumps(given), **more}
            found = await door.ok("DELETE", "/v1/advertisements", params=parameters)
            ids: list[str] = found["ids"]
            return ids

        # SIENA 3.7: what does not cover an advertisement has no effect on it.
        assert await end({"level": [{"gt": 15}]}) == []
        assert await end({"level": [{"gt": 0}]}) == ["narrow", "wide"]
        assert await end({"$others": "any"}, publisher="ann") == ["anns"]
        left = await door.ok("GET", "/v1/advertisements")
        assert [one["id"] for one in left["advertisements"]] == ["other"]

    run(place, work)


def test_a_guarded_topic_refuses_unadvertised_events_as_a_whole(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        refused = await door.publish({"what": "alarm"})
        assert refused.status_code == 422
        problem = refused.json()
        assert problem["title"] == "Unadvertised event"
        assert "has advertised nothing" in problem["detail"]
        await door.advertise({"what": ["alarm", "login"], "at.city": ["Bonn"]}, id="a")
        await door.advertise({"level": [{"gt": 3}]}, id="b")
        assert (await door.publish({"what": "alarm", "at": {"city": "Bonn"}})).status_code == 202
        cases: list[tuple[Any, int, str]] = [
            ([{"level": 4}, {"what": "x"}], 1, "/1/what"),
            ([{"level": 4}, {"what": "login", "at": {"city": "Rome"}}], 1, "/1/at/city"),
            ([{"level": 4}, {"what": "login", "at.city": "Rome"}], 1, "/1/at.city"),
            ({"username": "u"}, 0, "/username"),
            # Each value is covered by some advertisement, but no advertisement covers both.
            ({"what": "alarm", "level": 5}, 0, "/level"),
        ]
        for events, index, pointer in cases:
            answer = await door.publish(events)
            assert answer.status_code == 422, (events, answer.text)
            problem = answer.json()
            assert (problem["index"], problem["errors"][0]["pointer"]) == (index, pointer)
        assert door.parts.log.head == 1
        await door.ok("DELETE", "/v1/advertisements/b")
        assert (await door.publish({"level": 4})).status_code == 422
        assert (await door.publish({"what": "alarm", "undeclared": 1})).status_code == 202

    run(place, work)


def test_a_delivering_topic_drops_unadvertised_events_and_says_which(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic("deliver")
        await door.advertise({"level": [{"gt": 3}]})
        answer = (await door.publish([{"level": 1}, {"level": 4}, {"what": "x"}, {"level": 5}])).json()
        assert (answer["accepted"], len(answer["ids"]), answer["unadvertised"]) == (2, 2, [0, 2])
        assert door.parts.log.head == 2
        # The id of a dropped event stays free.
        dropped = (await door.publish({"$id": "e", "what": "x"})).json()
        assert dropped == {"accepted": 0, "ids": [], "unadvertised": [0]}
        await door.advertise({"what": ["x"]})
        assert (await door.publish({"$id": "e", "what": "x"})).json() == {"accepted": 1, "ids": ["e"]}
        assert door.parts.log.head == 3

    run(place, work)


def test_a_repeated_event_gets_its_first_answer_whatever_is_advertised_now(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        await door.advertise({"level": [1, 2]}, id="a")
        event = {"$id": "e", "level": 1}
        assert (await door.publish(event)).status_code == 202
        await door.ok("DELETE", "/v1/advertisements/a")
        assert (await door.publish(event)).json() == {"accepted": 1, "ids": ["e"]}
        assert (await door.publish({"$id": "f", "level": 1})).status_code == 422
        assert (await door.publish([event, {"level": 2}])).status_code == 422

    run(place, work)


def test_the_check_is_repeated_in_the_transaction_if_advertisements_changed(
    place: Path | Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advertisement ends between the check of a batch and its transaction."""

    async def work(door: Door) -> None:
        await door.topic("guard")
        await door.advertise({"level": [1]}, id="a")
        check = PublicationGuard.check

        async def slow_check(self: PublicationGuard, *arguments: Any) -> Any:
            checked = await check(self, *arguments)
            await door.ok("DELETE", "/v1/advertisements/a")
            return checked

        assert (await door.publish({"level": 1})).status_code == 202
        monkeypatch.setattr(PublicationGuard, "check", slow_check)
        assert (await door.publish({"level": 1})).status_code == 422
        monkeypatch.undo()
        await door.advertise({"level": [1]}, id="a")
        assert (await door.publish({"level": 1})).status_code == 202

    run(place, work)


def test_turning_the_guard_on_and_off_takes_effect_with_the_answer(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        assert (await door.topic())["advertising"] == "off"
        assert (await door.publish({"level": 1})).status_code == 202
        await door.topic("guard")
        assert (await door.publish({"level": 1})).status_code == 422
        # A request that leaves the setting out does not change it.
        await door.ok("PUT", "/v1/topics/t", json={"attributes": ATTRIBUTES})
        assert (await door.publish({"level": 1})).status_code == 422
        await door.topic("off")
        assert (await door.publish({"level": 1})).status_code == 202

    run(place, work)


def test_a_new_attribute_narrows_closed_advertisements(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        await door.advertise({"level": [1]})
        await door.advertise({"level": [2], "$others": "any"})
        wider = {**ATTRIBUTES, "room": "string"}
        changed = await door.ok("PUT", "/v1/topics/t", json={"attributes": wider})
        assert changed["narrowed_advertisements"] == 1
        assert (await door.publish({"level": 1, "room": "x"})).status_code == 422
        assert (await door.publish({"level": 2, "room": "x"})).status_code == 202
        assert (await door.publish({"level": 1})).status_code == 202
        less = {name: kind for name, kind in wider.items() if name != "level"}
        refused = await door.http.put("/v1/topics/t", json={"attributes": less})
        assert refused.status_code == 409
        assert "advertisement" in refused.json()["detail"]

    run(place, work)


def test_advertisements_expire(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        await door.advertise({"level": [1]}, id="a", expires="PT1H")
        assert (await door.publish({"level": 1})).status_code == 202
        log = door.parts.log
        clock = log.clock
        log.clock = lambda: clock() + 7200
        # The transaction decides, also before the expired row is deleted.
        assert (await door.publish({"level": 1})).status_code == 422
        assert (await door.http.get("/v1/advertisements/a")).status_code == 404
        while await door.parts.advertisements.end_expired():
            pass
        assert (await door.advertise({"level": [1]}, id="a")).status_code == 201

    run(place, work)


def test_advertisements_survive_a_restart(place: Path | Database) -> None:
    async def before(door: Door) -> None:
        await door.topic("guard")
        await door.advertise({"level": [1]}, id="a")

    async def after(door: Door) -> None:
        assert (await door.publish({"level": 1})).status_code == 202
        assert (await door.publish({"level": 2})).status_code == 422

    run(place, before)
    run(place, after)


def test_publishers_are_keys_and_tenants_are_apart(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        ann, bob = await door.key("ann", "publish"), await door.key("bob", "publish")
        admin, reader = await door.key("root", "admin", "publish"), await door.key("sam", "subscribe")
        other = await door.key("ann", "publish", "admin", tenant="zeta")
        await door.ok(
            "PUT", "/v1/topics/t", json={"attributes": ATTRIBUTES, "advertising": "guard"}, headers=admin
        )

        async def advertise(headers: dict[str, str], **more: Any) -> httpx.Response:
            body = {"topic": "t", "advertisement": {"level": [1]}, **more}
            return await door.http.post("/v1/advertisements", json=body, headers=headers)

        assert (await advertise(ann, id="a")).json()["publisher"] == "ann"
        forbidden = await advertise(bob, publisher="ann")
        assert forbidden.status_code == 403
        assert forbidden.json()["errors"][0]["pointer"] == "/publisher"
        assert (await advertise(reader)).status_code == 403
        assert (await advertise(other)).status_code == 404
        assert (await door.publish({"level": 1}, headers=ann)).status_code == 202
        assert (await door.publish({"level": 1}, headers=bob)).status_code == 422
        assert (await door.http.delete("/v1/advertisements/a", headers=bob)).status_code == 403
        assert (await door.http.get("/v1/advertisements/a", headers=other)).status_code == 404
        assert (await door.http.get("/v1/advertisements/a", headers=reader)).status_code == 200
        assert (await door.http.get("/v1/advertisements/acme,a")).json()["topic"] == "acme/t"
        assert (await advertise(admin, publisher="bob")).status_code == 201
        assert (await door.publish({"level": 1}, headers=bob)).status_code == 202
        assert (await door.http.delete("/v1/advertisements/a", headers=ann)).status_code == 204

    run(place, work)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"advertisement": {"nope": ["x"]}}, 422, "/advertisement/nope"),
    ({"advertisement": {"level": ["x"]}}, 422, "/advertisement/level/0"),
    ({"advertisement": {"what": []}}, 422, "/advertisement/what"),
    ({"advertisement": {}}, 422, "/advertisement"),
    ({"advertisement": {"what": ["any", "x"]}}, 422, "/advertisement/what/0"),
    ({"advertisement": {"level": [{"gt": 7, "lt": 3}]}}, 422, "/advertisement/level/0"),
    ({"advertisement": {"level": {"gt": 3}}}, 422, "/advertisement/level"),
    ({"advertisement": "level > 3"}, 422, "/advertisement"),
    ({"advertisement": {"$xpath": "level > 3"}}, 422, "/advertisement/$xpath"),
    ({"advertisement": {"level": list(range(1001))}}, 413, "/advertisement"),
    ({"advertisement": {"level": [1]}, "topic": "none"}, 404, "/topic"),
    ({"advertisement": {"level": [1]}, "expires": "yesterday"}, 422, "/expires"),
    ({"advertisement": {"level": [1]}, "id": "a b"}, 422, "/id"),
    ({"topic": "t"}, 422, "/advertisement"),
]


def test_bad_requests_are_refused_at_their_place(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        for body, status, pointer in BAD:
            answer = await door.http.post("/v1/advertisements", json={"topic": "t", **body})
            assert answer.status_code == status, (body, answer.text)
            assert answer.json()["errors"][0]["pointer"] == pointer, (body, answer.text)
        assert (await door.ok("GET", "/v1/advertisements"))["advertisements"] == []
        for wrong in ("level > 3", "{"):
            answer = await door.http.delete(
                "/v1/advertisements", params={"topic": "t", "advertisement": wrong}
            )
            assert answer.status_code in (400, 422)
        assert (await door.topic("off"))["advertising"] == "off"
        refused = await door.http.put(
            "/v1/topics/t", json={"attributes": ATTRIBUTES, "advertising": "strict"}
        )
        assert refused.status_code == 422

    run(tmp_path, work)


def test_dead_subscriptions_are_reported_and_kept_up_to_date(place: Path | Database) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        await door.subscribe("low", {"level": {"lt": 3}})
        await door.subscribe("high", {"level": {"gt": 10}})
        await door.subscribe("all", None)

        async def dead(**more: str) -> list[str]:
            found = await door.ok("GET", "/v1/subscriptions", params={"dead": "true", **more})
            return [one["id"] for one in found["subscriptions"]]

        async def advertised(id: str) -> bool | None:
            found: bool | None = (await door.ok("GET", f"/v1/subscriptions/{id}"))["advertised"]
            listed = await door.ok("GET", "/v1/subscriptions")
            assert {one["id"]: one["advertised"] for one in listed["subscriptions"]}[id] is found
            return found

        assert await dead() == []
        assert await advertised("low") is None
        await door.advertise({"level": [{"between": [1, 5]}]}, id="a")
        assert await dead() == ["high"]
        assert [await advertised(id) for id in ("low", "high", "all")] == [True, False, True]
        await door.subscribe("user", {"username": {"exists": True}})
        assert await dead(topic="t") == ["high", "user"]
        await door.advertise({"level": [50], "username": "any"}, id="b")
        assert await dead() == []
        await door.ok("DELETE", "/v1/advertisements/a")
        assert await dead() == ["low"]
        if isinstance(place, Path):
            await door.ok("PUT", "/v1/subscriptions/low", json={"filter": {"level": 50}})
        else:
            await door.ok("DELETE", "/v1/subscriptions/low")
            await door.subscribe("low", {"level": 50})
        assert await dead() == []
        await door.ok("PUT", "/v1/advertisements/b", json={"advertisement": {"what": ["x"]}})
        assert sorted(await dead()) == ["high", "low", "user"]
        assert len(await dead(limit="1")) == 1
        await door.ok("DELETE", "/v1/subscriptions/high")
        assert sorted(await dead()) == ["low", "user"]
        await door.ok("DELETE", "/v1/advertisements/b")
        assert await dead() == []
        assert await advertised("low") is None

    run(place, work)


def test_a_subtree_subscription_is_dead_if_all_its_members_are(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        for name in ("s.a", "s.b"):
            await door.ok("PUT", f"/v1/topics/{name}", json={"attributes": {"n": "integer"}})
        body = {"topic": "s.**", "id": "sub", "filter": {"n": 1}}
        await door.ok("POST", "/v1/subscriptions", json=body)

        async def dead() -> list[str]:
            found = await door.ok("GET", "/v1/subscriptions?dead=true")
            return [one["id"] for one in found["subscriptions"]]

        await door.ok("POST", "/v1/advertisements", json={"topic": "s.a", "advertisement": {"n": [2]}})
        assert await dead() == []
        assert (await door.ok("GET", "/v1/subscriptions/sub"))["advertised"] is None
        await door.ok(
            "POST", "/v1/advertisements", json={"topic": "s.b", "advertisement": {"n": [3]}, "id": "b"}
        )
        assert await dead() == ["sub"]
        assert (await door.ok("GET", "/v1/subscriptions/sub"))["advertised"] is False
        await door.ok("PUT", "/v1/advertisements/b", json={"advertisement": {"n": [1]}})
        assert await dead() == []
        assert (await door.ok("GET", "/v1/subscriptions/sub"))["advertised"] is True

    run(tmp_path, work)


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_an_advertisement_is_wanted_before_the_first_subscription_is_answered(
    tmp_path: Path, rounds: int
) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        installer = door.parts.subscriptions._installer
        install = installer.install
        seen: list[bool] = []

        async def watched(*arguments: Any, **more: Any) -> None:
            await install(*arguments, **more)
            # Here the transaction is committed, and the answer is not written yet.
            seen.append((await door.ok("GET", f"/v1/advertisements/{current}"))["wanted"])

        installer.install = watched  # type: ignore[method-assign]  # looks in between
        for number in range(rounds):
            current = f"a{number}"
            made = await door.advertise({"level": [number]}, id=current)
            assert made.json()["wanted"] is False
            await door.subscribe(f"s{number}", {"level": number})
            found = await door.ok("GET", f"/v1/advertisements/{current}")
            assert (found["wanted"], found["subscriptions"]) == (True, 1)
        assert seen == [True] * rounds

    run(tmp_path, work)


def test_advertisements_are_soap_operations_too(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")

        async def ask(body: str) -> httpx.Response:
            return await door.http.post(
                "/soap", content=envelope(body), headers={"content-type": "application/soap+xml"}
            )

        covers = "<e:Covers>{&quot;level&quot;: [1]}</e:Covers>"
        made = await ask(f"<e:Advertise><e:Topic>t</e:Topic>{covers}<e:Id>a</e:Id></e:Advertise>")
        assert made.status_code == 200, made.text
        assert "AdvertiseResponse" in made.text
        assert (await door.publish({"level": 1})).status_code == 202
        listed = await ask("<e:EnumerateAdvertisements/>")
        assert 'id="a"' in listed.text
        wrong = await ask("<e:Advertise><e:Topic>t</e:Topic><e:Covers>{}</e:Covers></e:Advertise>")
        assert wrong.status_code == 400
        assert "at least one attribute" in wrong.text
        ended = await ask(f"<e:Unadvertise><e:Topic>t</e:Topic>{covers}</e:Unadvertise>")
        assert ">a<" in ended.text
        assert (await door.publish({"level": 1})).status_code == 422

    run(tmp_path, work)


def test_explain_names_the_advertisements(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        await door.topic("guard")
        event = {"event": {"level": 5}}
        # Before its first server has a stream, nothing is routed there.
        door.parts.members.remove("s1")
        door.parts.table.remove("s1")
        found = await door.ok("POST", "/v1/topics/t/explain", json=event)
        assert (found["advertising"], found["advertised_by"]) == ("guard", None)
        await door.advertise({"level": [{"gt": 3}]}, id="high", publisher="ann")
        await door.advertise({"level": [1]}, id="low")
        found = await door.ok("POST", "/v1/topics/t/explain", json=event)
        assert found["advertised_by"] == [{"id": "high", "publisher": "ann"}]
        filter = {"filter": {"level": {"lt": 3}}}
        found = await door.ok("POST", "/v1/topics/t/explain", json=filter)
        assert found["advertised_by"] == [{"id": "low", "publisher": "network"}]

    run(tmp_path, work)


def test_the_stream_of_wanted_tells_changes_and_ends_with_the_advertisement(tmp_path: Path) -> None:
    async def work(door: Door) -> None:
        await door.topic()
        await door.advertise({"level": [1]}, id="a")
        states: list[bool] = []

        async def is_wanted() -> bool | None:
            found = await door.http.get("/v1/advertisements/a")
            return None if found.status_code == 404 else bool(found.json()["wanted"])

        async def watch() -> None:
            async for state in door.parts.wanted.watch(is_wanted):
                states.append(state)

        watching = asyncio.create_task(watch())

        async def until_states(expected: list[bool]) -> None:
            for _ in range(500):
                if states == expected:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(states)

        await until_states([False])
        await door.subscribe("other", {"level": 2})
        await door.subscribe("s", {"level": 1})
        await until_states([False, True])
        await door.ok("DELETE", "/v1/subscriptions/s")
        # A later summary without the subscription.
        door.parts.table.accept("s1", 1, 1 << 40, {})
        await until_states([False, True, False])
        await door.ok("DELETE", "/v1/advertisements/a")
        await asyncio.wait_for(watching, 10)

    run(tmp_path, work)
