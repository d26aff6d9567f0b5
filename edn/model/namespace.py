"""The namespace: names of topics, subtrees of them, and what a subscription to a subtree is made of.

A topic's name is parts joined by dots. The **subtree** `stocks.**` is the topic `stocks` and all whose names
begin with `stocks.`; `**` is all of them. Inside the network a name stands behind its tenant, as a **path**:
`acme/stocks.**`. Functions here take names and paths alike; no subtree reaches into another tenant.

A subscription to a subtree has a **member** a topic: an ordinary subscription, whose id is that of the whole
and, behind a sign that no subscriber's id can hold, the topic's number. Whoever is notified never hears of
members: what stands before the sign is what they are told (`subscription_of`).

Ids of subscriptions are the tenant's own. Inside the network a subscription is found by its **key**: the
tenant, a comma and the id, or the bare id of one of the operator's. Neither a tenant nor an id holds a comma.
A caller names ids and never keys, except the operator, who sees the keys of tenants' subscriptions:

    acme,s1          subscription s1 of tenant acme
    acme,s1+2f       its member on topic 2f
    s1               subscription s1 of the operator
"""

from __future__ import annotations

import re

from edn.errors import InvalidInput, NotFound

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_NAME = 256

#: the subtree of all topics, and what ends the name of any other
ALL = "**"
_BELOW = "." + ALL
#: between the id of a subscription to a subtree and the number of a topic
MEMBER = "+"
#: between a tenant and the id of one of its subscriptions
OWNED = ","


def check_topic_name(name: str) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f'topic name "{name[:80]}": letters, digits, "_" and "-" in parts joined by dots, '
            f"such as stocks.nyse.quotes, at most {MAX_NAME} characters",
            pointer="/name",
        )


def check_subtree_name(name: str) -> None:
    if name != ALL and (len(name) > MAX_NAME or not _NAME.fullmatch(name.removesuffix(_BELOW))):
        raise InvalidInput(
            f'subtree "{name[:80]}": a topic\'s name and ".{ALL}", such as stocks.{ALL}, or "{ALL}" for all '
            f"topics, at most {MAX_NAME} characters",
            pointer="/name",
        )


def is_tenant(name: str) -> bool:
    """Whether it can be the name of a tenant; the operator, who has none, is not one."""
    return _TENANT.fullmatch(name) is not None


def is_subtree(name: str) -> bool:
    """Whether it is meant as one; `check_subtree_name` tells whether it is one."""
    return ALL in name


def subtrees_of(path: str) -> list[str]:
    """The subtrees that a topic is in, the smallest first: those of the topic itself and of all above it."""
    tenant, slash, name = path.rpartition("/")
    parts = name.split(".")
    above = [".".join(parts[:count]) + _BELOW for count in range(len(parts), 0, -1)]
    return [tenant + slash + each for each in (*above, ALL)]


def reaches(wider: str, path: str) -> bool:
    """Whether every topic that `path`, a topic or a subtree, stands for is in `wider`, which is either."""
    if not is_subtree(wider):
        return wider == path
    root = path.removesuffix(ALL).removesuffix(".")
    if not root or root.endswith("/"):
        return wider == path  # all of a tenant's
    return wider in subtrees_of(root)


def stem(subtree: str) -> str:
    """What the path of every subtree inside this one begins with, and that of no other of its tenant."""
    return subtree.removesuffix(ALL)


def member_id(subscription: str, topic: int) -> str:
    return f"{subscription}{MEMBER}{topic:x}"


def subscription_of(key: str) -> str:
    """Return the key of a subscription: of a member that of the whole that it is part of."""
    return key.partition(MEMBER)[0]


def key_of(tenant: str, id: str) -> str:
    """Compose the key of a tenant's subscription; raises `NotFound` for an id that spells a key itself."""
    if OWNED in id:
        raise NotFound(f'no subscription "{id[:80]}"')
    return f"{tenant}{OWNED}{id}" if tenant else id


def owner_of(key: str) -> str:
    """Return the tenant that a subscription belongs to; empty is the operator."""
    tenant, comma, _ = key.partition(OWNED)
    return tenant if comma else ""


def id_of(key: str) -> str:
    """Return the id inside the tenant; of a member with its topic."""
    return key.partition(OWNED)[2] or key


def told_as(key: str) -> str:
    """Return the id that a subscriber is told: without the tenant, of a member that of the whole."""
    return id_of(subscription_of(key))


def is_member(id: str) -> bool:
    return MEMBER in id
