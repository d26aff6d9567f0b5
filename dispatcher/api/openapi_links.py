"""Links of the OpenAPI document: which calls accept the ids that an answer names.

Readers of the document find their way by them, and so do programs that try sequences of calls.
"""

from __future__ import annotations

from typing import Any

_ID = {"id": "$response.body#/id"}
_SUBSCRIPTION = "/v1/subscriptions/{id}"
_OTHER_DOOR = "/cloudevents/subscriptions/{id}"
_TOPIC = "/v1/topics/{name}"
_NAME = {"name": "$response.body#/name"}

#: a call that can follow, and where its parameters are found
Following = tuple[str, str, dict[str, str]]

_OF_A_SUBSCRIPTION: tuple[Following, ...] = (
    ("GET", _SUBSCRIPTION, _ID),
    ("PUT", _SUBSCRIPTION, _ID),
    ("DELETE", _SUBSCRIPTION, _ID),
    *(
        ("POST", f"{_SUBSCRIPTION}/{action}", _ID)
        for action in ("pause", "resume", "renew", "enable", "example", "rotate-secret", "recover")
    ),
    ("GET", f"{_SUBSCRIPTION}/attempts", _ID),
    ("GET", _OTHER_DOOR, _ID),
    ("PUT", _OTHER_DOOR, _ID),
    ("DELETE", _OTHER_DOOR, _ID),
)
_OF_A_TOPIC: tuple[Following, ...] = (
    ("GET", _TOPIC, _NAME),
    ("PUT", _TOPIC, _NAME),
    ("DELETE", _TOPIC, _NAME),
    ("POST", f"{_TOPIC}/events", _NAME),
    ("POST", f"{_TOPIC}/explain", _NAME),
    ("GET", "/v1/subscriptions", {"query.topic": _NAME["name"]}),
)

#: (method, path, statuses) → what can follow
LINKS: dict[tuple[str, str, tuple[str, ...]], tuple[Following, ...]] = {
    ("PUT", _TOPIC, ("200", "201")): _OF_A_TOPIC,
    ("GET", _TOPIC, ("200",)): _OF_A_TOPIC,
    ("GET", "/v1/topics", ("200",)): (("GET", _TOPIC, {"name": "$response.body#/topics/0/name"}),),
    ("POST", f"{_TOPIC}/events", ("202",)): (
        (
            "GET",
            f"{_TOPIC}/events",
            {"name": "$request.path.name", "query.id": "$response.body#/ids/0"},
        ),
    ),
    ("POST", "/v1/subscriptions", ("200", "201")): _OF_A_SUBSCRIPTION,
    ("POST", "/cloudevents/subscriptions", ("200", "201")): _OF_A_SUBSCRIPTION,
    ("GET", "/v1/subscriptions", ("200",)): (
        ("GET", _SUBSCRIPTION, {"id": "$response.body#/subscriptions/0/id"}),
        ("GET", "/v1/subscriptions", {"query.cursor": "$response.body#/next"}),
    ),
    ("GET", "/cloudevents/subscriptions", ("200",)): (("GET", _OTHER_DOOR, {"id": "$response.body#/0/id"}),),
    ("GET", "/v1/servers", ("200",)): (
        ("GET", "/v1/servers/{id}/summary", {"id": "$response.body#/servers/0/id"}),
    ),
    ("POST", "/v1/keys", ("201",)): (("DELETE", "/v1/keys/{id}", _ID),),
    ("GET", "/v1/dead-letters", ("200",)): (
        ("GET", "/v1/dead-letters/{id}", {"id": "$response.body#/dead_letters/0/id"}),
        ("POST", "/v1/dead-letters/{id}/resend", {"id": "$response.body#/dead_letters/0/id"}),
    ),
}


def add(document: dict[str, Any]) -> None:
    """Put the links into a document that has all of its operations."""
    paths = document["paths"]
    for (method, path, statuses), following in LINKS.items():
        for status in statuses:
            links = paths[path][method.lower()]["responses"][status].setdefault("links", {})
            for then, target, parameters in following:
                operation = paths[target][then.lower()]
                links[f"{then} {target}".translate(_LINK_NAME)] = {
                    "operationId": operation["operationId"],
                    "parameters": parameters,
                    "description": operation.get("summary", ""),
                }


#: names of links are letters, digits, dots, hyphens and underscores
_LINK_NAME = str.maketrans({" ": ".", "/": ".", "{": None, "}": None})
