"""Authorization as a property: no value of any parameter lets a caller reach what belongs to another tenant.

A victim's tenant has topics, subscriptions of every kind, dead letters and keys. Attackers with keys of every
scope, of another tenant and of none, and without a key, put the victim's names, `tenant/name`, ids of members
and guesses into every parameter that can name something, at the dispatcher, at a server and over SOAP. After
each call the victim's view must be what it was, and no answer may hold what only the victim knows. At the end
nothing of the victim's has reached an attacker, and nothing of an attacker's passes for the victim's.

The parameters are read from the services' own descriptions: a new one fails the first test until it is
classified in `tests.access.matrix`.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from standardwebhooks import Webhook

from edn import protocol
from edn.formats.event_xml import NAMESPACE
from tests.access import matrix
from tests.access.matrix import Kind, Parameter
from tests.network import Hook, Network, until

SERVERS = 1
LOCKED = True
DISPATCHER_OPTIONS = ("--tuning", "fixed")

VICTIM, EVIL = "victim", "evil"
#: in events, filters and names that only the victim knows
CANARY = "CANARY-4711"
#: in events that attackers publish
MARK = "MARK-OF-EVIL"
SECRET = "whsec_" + "dmljdGltJ3Mgb3duIHNlY3JldCBvZiAzMiBieXRlcyEh"
ATTRIBUTES = {"attributes": {"price": "number", "note": "string"}}
#: cases of different (call, parameter, foreign value); the least that is worth its name
LEAST_CASES = 400


@dataclass(frozen=True, slots=True)
class Attacker:
    label: str
    #: "" for none
    key: str
    tenant: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def own(self, name: str) -> str:
        return f"{name}-{self.tenant or 'none'}"


@dataclass(slots=True)
class World:
    network: Network
    hook: Hook
    http: httpx.Client
    attackers: list[Attacker] = field(default_factory=list)
    #: admin keys, by tenant
    admins: dict[str, str] = field(default_factory=dict)
    #: what each kind of parameter can be made to name
    foreign: dict[Kind, list[Any]] = field(default_factory=dict)
    documents: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    wsdl: bytes = b""
    #: path of a sink → the secret that the victim's notifications there are signed with
    secrets: dict[str, str] = field(default_factory=lambda: {"/v-hook": SECRET})
    statuses: Counter[int] = field(default_factory=Counter)

    def admin(self, tenant: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.admins[tenant]}"}
        answer = self.http.request(method, path, headers=headers, **more)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer

    def key(self, scopes: list[str], tenant: str) -> str:
        body = {"name": "app", "scopes": scopes, "tenant": tenant}
        return str(self.admin("", "POST", "/v1/keys", json=body).json()["key"])

    def restore_own(self) -> None:
        """Give attackers what is theirs, should an earlier call have ended it."""
        for tenant in (EVIL, ""):
            for name in ("mine", "mine.sub"):
                self.admin(tenant, "PUT", f"/v1/topics/{name}", json=ATTRIBUTES)
            for id, more in (
                (f"own-{tenant or 'none'}", {"sink": {"url": self.hook.url("/evil")}}),
                (f"own-stream-{tenant or 'none'}", {}),
            ):
                there = self.http.get(
                    f"/v1/subscriptions/{id}", headers={"authorization": f"Bearer {self.admins[tenant]}"}
                )
                if there.status_code == 404:
                    body = {"id": id, "topic": "mine", "owner": "app", **more}
                    self.admin(tenant, "POST", "/v1/subscriptions", json=body)

    def view(self) -> dict[str, Any]:
        """All that the victim sees and that does not change by itself, and what operators have set."""
        get = partial(self.admin, VICTIM, "GET")
        listed = get("/v1/subscriptions?limit=1000&members=true").json()["subscriptions"]
        whole = {}
        for id in ("v-hook", "v-made", "v-stream", "v-tree", "v-dead"):
            found = get(f"/v1/subscriptions/{id}").json()
            whole[id] = {name: value for name, value in found.items() if name != "delivery"}
        routes = self.admin("", "GET", "/v1/routes").json()
        servers = self.admin("", "GET", "/v1/servers").json()["servers"]
        return {
            "topics": get("/v1/topics").json(),
            "subscriptions": [{**one, "delivery": None} for one in listed],
            "whole": whole,
            "cloudevents": get("/cloudevents/subscriptions").json(),
            "keys": get("/v1/keys").json(),
            "sources": [
                (one["id"], one["topic"], one["url"], one["consumer"])
                for one in get("/v1/sources").json()["sources"]
            ],
            "advertisements": get("/v1/advertisements").json(),
            "letters": get("/v1/dead-letters?subscription=v-dead").json(),
            "bindings": routes["bindings"],
            "servers": [(one["id"], one["state"]) for one in servers],
            "repartitions": self.admin("", "GET", "/v1/repartitions").json(),
        }


@pytest.fixture(scope="module")
def world(network: Network, hook: Hook) -> Iterator[World]:
    with httpx.Client(base_url=network.url, timeout=30) as http:
        made = World(network, hook, http, admins={"": network.secret})
        for tenant in (VICTIM, EVIL):
            made.admins[tenant] = made.key(["admin"], tenant)
        _settle_victim(made)
        made.restore_own()
        for tenant in (EVIL, ""):
            for scope in ("publish", "subscribe", "admin", "metrics"):
                if (scope == "metrics" and tenant) or (scope == "admin" and not tenant):
                    continue  # no such key, and the operator
                label = f"{scope} of {tenant or 'no tenant'}"
                made.attackers.append(Attacker(label, made.key([scope], tenant), tenant))
        made.attackers.append(Attacker("nobody", "", EVIL))
        server = network.servers["s1"]
        network_only = {"authorization": f"Bearer {network.secret}"}
        made.documents = [
            (network.url, httpx.get(f"{network.url}/internal/openapi.json", headers=network_only).json()),
            (server.url, httpx.get(f"{server.url}/openapi.json").json()),
        ]
        made.wsdl = http.get("/soap?wsdl").content
        yield made


def _settle_victim(world: World) -> None:
    victim = partial(world.admin, VICTIM)
    for name in ("orders", "plant.a", "plant.b"):
        victim("PUT", f"/v1/topics/{name}", json=ATTRIBUTES)
    world.hook.status["/v-dead"] = 410
    hook = {"url": world.hook.url("/v-hook"), "secret": SECRET, "recipient": CANARY}
    filter = {"note": {"ne": f"{CANARY}-filter"}}
    for id, topic, more in (
        ("v-hook", "orders", {"sink": hook}),
        ("v-made", "orders", {"sink": {"url": world.hook.url("/v-made"), "recipient": CANARY}}),
        ("v-stream", "orders", {}),
        ("v-tree", "plant.**", {"sink": hook}),
        ("v-dead", "orders", {"sink": {"url": world.hook.url("/v-dead"), "recipient": CANARY}}),
    ):
        body = {"id": id, "topic": topic, "filter": filter, "owner": "app", **more}
        made = victim("POST", "/v1/subscriptions", json=body).json()
        if id == "v-made":
            world.secrets["/v-made"] = made["sink"]["secret"]
    source = {"id": "v-source", "topic": "orders", "url": f"nats://{CANARY}:x@127.0.0.1:9/{CANARY}"}
    victim("POST", "/v1/sources", json=source)
    advertisement = {"id": "v-ad", "topic": "orders", "advertisement": {"price": "any", "note": [CANARY]}}
    victim("POST", "/v1/advertisements", json=advertisement)
    event = {"$id": "order-1", "price": 1, "note": CANARY}
    victim("POST", "/v1/topics/orders/events", json=event)
    made_id = victim("POST", "/v1/topics/orders/events", json={"price": 2, "note": CANARY}).json()["ids"][0]

    def letters() -> list[dict[str, Any]]:
        found = victim("GET", "/v1/dead-letters?subscription=v-dead").json()["dead_letters"]
        return found if sum(one["notifications"] for one in found) >= 2 else []

    dead = [one["id"] for one in until("the victim's dead letters", letters)]
    until(
        "the victim's notifications", lambda: b"order-1" in b"".join(b for _, b in world.hook.at("/v-hook"))
    )
    members = victim("GET", "/v1/subscriptions?members=true&limit=1000").json()["subscriptions"]
    [member, *_] = [one["id"] for one in members if one["id"].startswith("v-tree") and one["id"] != "v-tree"]
    cursor = victim("GET", "/v1/subscriptions?limit=1").json()["next"]
    keys = victim("GET", "/v1/keys").json()["keys"]
    position = _first_position(world)
    number = dead[0].rpartition(".")[2]
    world.foreign = {
        Kind.TOPIC: [
            *("orders", "victim/orders", "plant.a", "victim/plant.a", "victim/plant.**", "victim/**"),
            *("/orders", "victim%2Forders", "victim/guess"),
        ],
        Kind.SUBSCRIPTION: [
            *("v-hook", "victim/v-hook", "v-stream", "v-tree", member, "v-dead", "v-guess"),
            member.replace("v-tree", "v-hook"),
        ],
        Kind.KEY: [keys[0]["id"], f"victim/{keys[0]['id']}", "000000000000"],
        Kind.SOURCE: ["v-source", "victim/v-source", "victim,v-source"],
        Kind.ADVERTISEMENT: ["v-ad", "victim/v-ad", "victim,v-ad"],
        Kind.TENANT: [VICTIM, "victim/", ""],
        Kind.OWNER: ["app", "victim/app"],
        Kind.LETTER: [*dead, number, "s1.1", "s1.2", "s1.999999", "victim/s1.1"],
        Kind.SINK: [
            world.hook.url("/v-hook"),
            world.hook.url("/v-made"),
            world.hook.url("/v-dead"),
            *("stream:v-stream", "stream:v-tree", f"stream:{member}"),
            "cloudevents:?" + urlencode({"mode": "structured", "to": world.hook.url("/v-hook")}),
            "soap:" + world.hook.url("/v-hook"),
        ],
        Kind.EVENT: ["order-1", made_id, "victim/order-1"],
        Kind.POSITION: [position, "ffffffffffff.1.0"],
        Kind.CURSOR: [cursor, "s1~"],
        Kind.SERVER: ["s1", "guess"],
        Kind.REPARTITION: ["1", "guess"],
        Kind.TOKEN: ["guess", "v-hook"],
        Kind.MESSAGE: [
            protocol.encode(protocol.Subscribe(json.dumps({"topic": name}).encode(), []))
            for name in ("orders", "victim/orders")
        ],
        Kind.AUTHORIZATION: [f"Bearer edn_{keys[0]['id']}_guess", "Bearer guess", f"Basic {keys[0]['id']}"],
        Kind.FORWARDED: ["guess"],
    }


def _first_position(world: World) -> str:
    headers = {"authorization": f"Bearer {world.admins[VICTIM]}"}
    with world.http.stream("GET", "/v1/subscriptions/v-stream/events", headers=headers) as response:
        for line in response.iter_lines():
            if line.startswith("id: "):
                return line.removeprefix("id: ")
    raise AssertionError("the victim's stream says nothing")


# -- the calls ------------------------------------------------------------------------------------------


def _body(world: World, path: str, who: Attacker) -> Any:
    """A body that the call takes, which names what is the attacker's own."""
    sink = {"url": world.hook.url("/evil")}
    bodies: dict[str, Any] = {
        "/v1/topics/{name}": ATTRIBUTES,
        "/v1/topics/{name}/events": {"price": 1, "note": MARK},
        "/v1/topics/{name}/explain": {"event": {"price": 1}},
        "/v1/subscriptions": {"topic": "mine", "sink": sink, "expires": "PT10M"},
        "/v1/subscriptions/{id}": {"sink": sink},
        "/v1/subscriptions/{id}/renew": {"expires": "PT10M"},
        "/v1/subscriptions/{id}/recover": {"since": "2026-01-01T00:00:00Z"},
        "/v1/subscriptions/{id}/rotate-secret": {"grace": "PT0.001S"},
        "/cloudevents/subscriptions": {
            "config": {"topic": "mine"},
            "sink": sink["url"],
            "protocol": "HTTP",
        },
        "/cloudevents/subscriptions/{id}": {"sink": sink["url"], "protocol": "HTTP"},
        "/v1/keys": {"name": "another", "scopes": ["subscribe"], "expires": "PT10M"},
        "/v1/advertisements": {"topic": "mine", "advertisement": {"price": "any"}},
        "/v1/advertisements/{id}": {"advertisement": {"price": "any"}},
        "/v1/sources": {"topic": "mine", "url": "nats://127.0.0.1:9/S"},
        "/v1/routes/{name}": {"servers": ["s1"]},
        "/v1/tuning": {"mode": "paper"},
        "/v1/link": {"lag_limit": 1},
        "/v1/repartitions/{id}/assignments": {"assignments": {"v-hook": "s1"}},
        "/internal/subscriptions/{id}/recover": {"since": 0},
    }
    return copy.deepcopy(bodies.get(path))


_QUERIES: dict[tuple[str, str], dict[str, str]] = {
    ("GET", "/v1/topics/{name}/events"): {"id": "any"},
    ("GET", "/v1/topics/{name}/projection"): {"x": "price", "y": "note"},
    ("DELETE", "/v1/subscriptions"): {"topic": "mine", "filter": "price exists", "owner": "nobody"},
    ("DELETE", "/v1/advertisements"): {"topic": "mine", "advertisement": "{}"},
    ("GET", "/cloudevents/consent/{server}"): {"token": "guess"},
    ("POST", "/cloudevents/consent/{server}"): {"token": "guess"},
}


def _own_value(one: Parameter, who: Attacker) -> str:
    kind = matrix.NAMES[one.path][one.label]
    return (
        {
            Kind.TOPIC: "mine",
            Kind.SUBSCRIPTION: who.own("own-stream") if one.path.endswith("/events") else who.own("own"),
            Kind.SERVER: "s1",
            Kind.LETTER: "s1.999999",
        }.get(kind, "1")
        if kind is not None
        else "style.css"
    )


def _put(body: Any, dotted: str, value: Any) -> Any:
    place = body if isinstance(body, dict) else {}
    found = place
    *way, last = dotted.split(".") if not dotted.startswith("$") else [dotted]
    for part in way:
        if not isinstance(found.get(part), dict):
            found[part] = {}
        found = found[part]
    found[last] = value
    return place


def _steps(topic: str) -> list[dict[str, Any]]:
    """A sequence that names a topic: as that of a step, or, if it has a tenant, of its `unless`."""
    if topic.startswith("victim/"):
        return [{"topic": "mine"}, {"topic": "mine", "unless": {"topic": topic}}]
    return [{"topic": "mine"}, {"topic": topic}]


def _value_in_body(one: Parameter, value: Any) -> Any:
    if one.name == "assignments":
        return {value: "s1"}
    if one.name == "sequence":
        return _steps(value)
    return [value] if one.name == "servers" else value


@dataclass(frozen=True, slots=True)
class Case:
    base: str
    one: Parameter
    #: all parameters of the call, for those that a path needs
    others: tuple[Parameter, ...]
    value: Any


def _cases(world: World) -> Iterator[Case]:
    for base, document in world.documents:
        by_call: dict[tuple[str, str], list[Parameter]] = {}
        for path, operations in document["paths"].items():
            for method in operations:
                by_call[method.upper(), path] = []
        for one in matrix.parameters(document):
            by_call[one.method, one.path].append(one)
        for (method, path), own in by_call.items():
            more = [Parameter(method, path, *label.split(" ", 1)) for label in matrix.EVERYWHERE]
            if (method, path) == ("POST", "/v1/topics/{name}/events"):
                more.append(Parameter(method, path, "body", "$id"))
            if base != world.network.url and path == "/v1/subscriptions":
                # Passed on with its query, which the server's own document leaves to the dispatcher's.
                more += [
                    one
                    for one in matrix.parameters(world.documents[0][1])
                    if (one.method, one.path) == (method, path) and one not in own
                ]
            for one in (*own, *more):
                kind = matrix.NAMES.get(path, {}).get(one.label) or matrix.EVERYWHERE.get(one.label)
                for value in world.foreign[kind] if kind is not None else ():
                    yield Case(base, one, tuple(own), value)


def _attack(world: World, case: Case, who: Attacker) -> httpx.Response:
    one = case.one
    path = one.path
    for other in case.others:
        if other.location == "path":
            value = case.value if other == one else _own_value(other, who)
            path = path.replace(f"{{{other.name}}}", quote(str(value), safe=""))
    query = dict(_QUERIES.get((one.method, one.path), {}))
    headers = dict(who.headers)
    body = _body(world, one.path, who) if one.method in ("POST", "PUT") else None
    content = None
    if one.location == "query":
        query[one.name] = json.dumps(_steps(case.value)) if one.name == "sequence" else str(case.value)
    elif one.location == "header":
        headers[one.name.lower()] = str(case.value)
    elif one.location == "body" and one.name == "message":
        content = case.value
    elif one.location == "body":
        body = _put(body, one.name, _value_in_body(one, case.value))
    request = world.http.build_request(
        one.method,
        f"{case.base}{path}" + (f"?{urlencode(query)}" if query else ""),
        headers=headers,
        **({"content": content} if content is not None else {} if body is None else {"json": body}),
    )
    return _answer(world, request)


def _answer(world: World, request: httpx.Request) -> httpx.Response:
    """The answer; of a stream what comes at once."""
    response = world.http.send(request, stream=True)
    try:
        if "event-stream" in response.headers.get("content-type", "") or request.url.path.endswith("/live"):
            read = b""
            with contextlib.suppress(httpx.TimeoutException, StopIteration):
                request.extensions["timeout"]["read"] = 0.2
                parts = response.iter_raw()
                while len(read) < 100_000:
                    read += next(parts)
            return httpx.Response(response.status_code, content=read)
        response.read()
        return response
    finally:
        response.close()


def _attackers(world: World, case: Case, earlier: set[Parameter]) -> list[Attacker]:
    """Those for whom a case differs from another; nobody tries one value of each parameter."""
    by_label = {who.label: who for who in world.attackers}
    if case.one.label == "header authorization":
        return [by_label["nobody"]]
    if case.one.label in matrix.EVERYWHERE:
        return [by_label["admin of evil"], by_label["subscribe of no tenant"]]
    if case.one.path.startswith("/internal/"):
        return [by_label[label] for label in ("admin of evil", "subscribe of no tenant", "nobody")]
    return [who for who in world.attackers if who.key or case.one not in earlier]


def _wants_a_key(case: Case) -> bool:
    """Whether no attacker's key can be right: at the network's own calls, with a wrong Authorization."""
    public = ("/", "/livez", "/readyz", "/dashboard/{file}", "/soap", "/cloudevents/consent/{server}")
    wrong = case.one.label == "header authorization" and case.one.path not in public
    return wrong or case.one.path.startswith("/internal/")


def _check(world: World, what: str, answer: httpx.Response) -> None:
    world.statuses[answer.status_code] += 1
    assert CANARY not in answer.text, f"{what} showed what is the victim's: {answer.text[:500]}"
    assert answer.status_code < 500 or answer.status_code == 503, f"{what}: {answer.text[:300]}"


# -- tests ----------------------------------------------------------------------------------------------


def test_every_parameter_is_classified(world: World) -> None:
    for _, document in world.documents:
        assert matrix.unclassified(document) == [], "put these into tests/access/matrix.py"
    assert matrix.unclassified_soap(world.wsdl) == [], "put these into tests/access/matrix.py"
    described = {one.path for _, document in world.documents for one in matrix.parameters(document)}
    assert sorted(matrix.NAMES.keys() - described) == [], "paths that are gone"


def test_no_value_of_any_parameter_reaches_another_tenant(world: World) -> None:
    before = world.view()
    cases, calls, call = 0, 0, None
    seen: set[Parameter] = set()
    for case in _cases(world):
        if (case.base, case.one.method, case.one.path) != call:
            if call is not None and call[1] != "GET":
                assert world.view() == before, f"{call} changed what is the victim's"
                world.restore_own()
            call = (case.base, case.one.method, case.one.path)
        cases += 1
        for who in _attackers(world, case, seen):
            calls += 1
            what = f"{who.label}: {case.one.method} {case.one.path} with {case.one.label} = {case.value!r}"
            answer = _attack(world, case, who)
            _check(world, what, answer)
            if _wants_a_key(case):
                allowed = {401, 429} | ({403, 404} if "/" in str(case.value) else set())
                assert answer.status_code in allowed, f"{what}: {answer.status_code}"
        seen.add(case.one)
    assert world.view() == before
    print(f"\n{cases} cases of (call, parameter, foreign value), {calls} calls: {dict(world.statuses)}")
    assert cases >= LEAST_CASES


def _soap_message(element: str, values: dict[str, str], world: World, who: Attacker) -> str:
    """A message of an operation; `values` replace what is the attacker's own."""
    namespace, name = element[1:].split("}")
    given = {
        "Topic": "mine",
        "Name": "mine",
        "Address": world.hook.url("/evil"),
        "Subscription": who.own("own"),
        "Server": "s1",
        "Id": "",
        "IdempotencyKey": "",
        "@id": "",
        "@topic": "",
    } | values
    topic = f"<e:Topic>{given['Topic']}</e:Topic>" if given["Topic"] else ""
    address = f"<w:Delivery><w:NotifyTo><a:Address>{given['Address']}</a:Address></w:NotifyTo></w:Delivery>"
    chosen = f"<e:Id>{given['Id']}</e:Id>" if given["Id"] else ""
    key = f"<e:IdempotencyKey>{given['IdempotencyKey']}</e:IdempotencyKey>" if given["IdempotencyKey"] else ""
    marks = "".join(f' {one[1:]}="{given[one]}"' for one in ("@id", "@topic") if given[one])
    attributes = '<e:Attributes><e:Attribute name="price" type="number"/></e:Attributes>'
    inner = {
        "Subscribe": f"{address}{topic}{chosen}",
        "Publish": f'{topic}{key}<e:event{marks}><e:attribute name="note">{MARK}</e:attribute></e:event>',
        "CreateTopic": f"{topic}{attributes}",
        "DeleteTopic": f"{topic}<e:Cascade>true</e:Cascade>",
        "CreateRoute": f"<e:Name>{given['Name']}</e:Name><e:Server>{given['Server']}</e:Server>",
        "DeleteRoute": f"<e:Name>{given['Name']}</e:Name>",
        "EnumerateRoutes": f"<e:Name>{given['Name']}</e:Name>",
    }.get(name, "")
    header = f"<e:Subscription>{given['Subscription']}</e:Subscription>"
    header += f"<e:Topic>{given['header Topic']}</e:Topic>" if "header Topic" in given else ""
    prefix = "w" if namespace != NAMESPACE else "e"
    eventing = namespace if prefix == "w" else "urn:unused"
    return (
        '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"'
        f' xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:w="{eventing}" xmlns:e="{NAMESPACE}">'
        f"<s:Header>{header}</s:Header><s:Body><{prefix}:{name}>{inner}</{prefix}:{name}></s:Body></s:Envelope>"
    )


def test_no_element_of_any_soap_message_reaches_another_tenant(world: World) -> None:
    before = world.view()
    cases = calls = 0
    for element, names in matrix.soap_operations(world.wsdl).items():
        world.restore_own()
        eventing = not element.startswith(f"{{{NAMESPACE}}}")
        for name in sorted(names | {"header Topic"}):
            kind = matrix.SOAP[name.removeprefix("header ")]
            if name == "Subscription" and not eventing:
                continue  # the others do not read it
            for value in world.foreign[kind] if kind is not None else ():
                cases += 1
                for who in (who for who in world.attackers if who.key):
                    calls += 1
                    values = {name: str(value)}
                    if name in ("?topic", "header Topic"):
                        values["Topic"] = ""
                    query = "?" + urlencode({"topic": value}) if name == "?topic" else ""
                    request = world.http.build_request(
                        "POST",
                        f"/soap{query}",
                        content=_soap_message(element, values, world, who),
                        headers={**who.headers, "content-type": "application/soap+xml"},
                    )
                    what = f"{who.label}: {element} with {name} = {value!r}"
                    answer = world.http.send(request)
                    world.statuses[answer.status_code] += 1
                    assert CANARY not in answer.text, f"{what} showed what is the victim's"
                    assert "its log says why" not in answer.text, what
                    assert "the log of the service contains the cause" not in answer.text, what
        assert world.view() == before, f"{element} changed what is the victim's"
    print(f"\n{cases} cases of (operation, element, foreign value), {calls} calls")
    assert cases >= 100


def test_afterwards_nothing_of_the_one_has_reached_the_other(world: World) -> None:
    """Whatever attackers may do to what they own, the address of the victim's sink in it, say."""
    evil = partial(world.admin, EVIL)
    world.restore_own()
    before = world.view()
    headers = {"authorization": f"Bearer {world.admins[EVIL]}"}
    post = partial(world.http.post, headers=headers)
    shared = 0
    for url in world.foreign[Kind.SINK]:
        for more in ({}, {"owner": "app"}):
            body = {"topic": "mine", "sink": {"url": url}, **more}
            made = post("/v1/subscriptions", json=body)
            if made.status_code == 201:
                shared += 1
                for action, given in (("rotate-secret", {"grace": "PT0.001S"}), ("enable", None)):
                    post(f"/v1/subscriptions/{made.json()['id']}/{action}", json=given)
    assert shared >= 4, "anybody may name any address as a sink"
    evil("POST", "/v1/topics/mine/events", json={"price": 2, "note": MARK})
    assert world.view() == before
    for tenant in (EVIL, ""):
        world.admin(tenant, "POST", "/v1/topics/mine/events", json={"price": 3, "note": MARK})
    expected = []
    for topic in ("orders", "plant.a", "plant.b"):
        note = f"{CANARY}-after-{topic}"
        world.admin(VICTIM, "POST", f"/v1/topics/{topic}/events", json={"price": 3, "note": note})
        expected.append(note)

    def told(mark: str) -> bool:
        return any(mark.encode() in body for _, body in world.hook.at("/v-hook"))

    for note in expected:
        until(f"the victim's notification {note}", partial(told, note))
    until("the attackers' own notification", lambda: bool(world.hook.at("/evil")))
    until(
        "the victim's notification there", lambda: any(b"-after-" in b for _, b in world.hook.at("/v-made"))
    )
    for path, secret in world.secrets.items():
        verifier = Webhook(secret)
        for head, body in world.hook.at(path):
            # Not `verify`: it refuses what is older than five minutes, and these calls may take longer.
            stamp = datetime.fromtimestamp(int(head.get("webhook-timestamp", 0)), UTC)
            signature = verifier.sign(head.get("webhook-id", ""), stamp, body.decode())
            signed = signature in head.get("webhook-signature", "").split()
            assert signed == (CANARY.encode() in body), f"{path}: {'forged' if signed else 'not signed'}"
    for path in ("/v-hook", "/v-made", "/v-dead"):
        assert not any(
            CANARY.encode() in body and MARK.encode() in body for _, body in world.hook.at(path)
        ), "one notification of both"
    assert not any(CANARY.encode() in body for _, body in world.hook.at("/evil"))
    for tenant in (EVIL, ""):
        _look_at_everything(world, tenant)
    _read_victims_stream(world)


def _look_at_everything(world: World, tenant: str) -> None:
    """All that a tenant's keys show: nothing of it is the victim's."""
    scopes = ["subscribe", "publish"] if not tenant else ["admin"]
    headers = {"authorization": f"Bearer {world.key(scopes, tenant)}"}
    listed = world.http.get("/v1/subscriptions?limit=1000&members=true", headers=headers)
    assert CANARY not in listed.text
    for one in listed.json()["subscriptions"]:
        paths = [f"/v1/subscriptions/{one['id']}", f"/v1/subscriptions/{one['id']}/attempts"]
        letters = world.http.get(f"/v1/dead-letters?subscription={quote(one['id'])}", headers=headers)
        if letters.status_code == 200:
            paths += [f"/v1/dead-letters/{letter['id']}" for letter in letters.json()["dead_letters"]]
        for path in paths:
            assert CANARY not in world.http.get(path, headers=headers).text, path


def _read_victims_stream(world: World) -> None:
    """What the victim reads is what it has published to the topic, all of it and nothing else."""
    headers = {"authorization": f"Bearer {world.admins[VICTIM]}"}
    notes: list[str] = []
    with world.http.stream("GET", "/v1/subscriptions/v-stream/events", headers=headers) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                notes.append(json.loads(line.removeprefix("data: "))["event"]["attributes"]["note"])
                if len(notes) == 3:
                    break
    assert notes == [CANARY, CANARY, f"{CANARY}-after-orders"]
