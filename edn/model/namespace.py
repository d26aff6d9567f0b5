"""The namespace: names of topics, subtrees and subscriptions.

A topic's name is parts joined by dots. The **subtree** `stocks.**` is the topic `stocks` and all topics whose
names begin with `stocks.`; `**` is all topics. Inside the network a name has its tenant as a prefix, as a
**path**: `acme/stocks.**`. Functions accept names and paths; no subtree includes topics of another tenant.

A subtree subscription has one **member** per topic: an ordinary subscription. Its id is the id of the subtree
subscription, a `+`, which no subscriber's id contains, and the topic's number. Notifications carry the id
before the `+` (`public_id`).

Ids of subscriptions are unique within a tenant. Inside the network a subscription has a **key**: the tenant,
a comma and the id, or for a subscription of the operator only the id. Neither tenants nor ids contain a
comma. Callers send ids, not keys, except the operator, who sees the keys of tenants' subscriptions:

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

#: subtree of all topics, and the last part of any other subtree
ALL = "**"
_BELOW = "." + ALL
#: separator of a subtree subscription's id and a topic's number
MEMBER = "+"
#: separator of a tenant and a subscription's id
OWNED = ","


def check_topic_name(name: str) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            'the name of a topic must be parts of letters, digits, "_" and "-" joined by dots, such as '
            f'stocks.nyse.quotes, of at most {MAX_NAME} characters, got "{name[:80]}"',
            pointer="/name",
        )


def check_subtree_name(name: str) -> None:
    if name != ALL and (len(name) > MAX_NAME or not _NAME.fullmatch(name.removesuffix(_BELOW))):
        raise InvalidInput(
            f'a subtree must be the name of a topic and ".{ALL}", such as stocks.{ALL}, or "{ALL}" for all '
            f'topics, of at most {MAX_NAME} characters, got "{name[:80]}"',
            pointer="/name",
        )


def is_tenant(name: str) -> bool:
    """Tells whether a tenant may have this name; the operator's empty name is none."""
    return _TENANT.fullmatch(name) is not None


def is_subtree(name: str) -> bool:
    """Tells a subtree from a topic; `check_subtree_name` validates it."""
    return ALL in name


def subtrees_of(path: str) -> list[str]:
    """Lists the subtrees that include a topic, the smallest first."""
    tenant, slash, name = path.rpartition("/")
    parts = name.split(".")
    above = [".".join(parts[:count]) + _BELOW for count in range(len(parts), 0, -1)]
    return [tenant + slash + each for each in (*above, ALL)]


def includes(wider: str, path: str) -> bool:
    """Tells whether a topic or subtree contains every topic of another topic or subtree."""
    if not is_subtree(wider):
        return wider == path
    root = path.removesuffix(ALL).removesuffix(".")
    if not root or root.endswith("/"):
        return wider == path  # `path` is all topics of a tenant
    return wider in subtrees_of(root)


def path_prefix(subtree: str) -> str:
    """Returns the common prefix of the paths of all subtrees inside this one, and of no others."""
    return subtree.removesuffix(ALL)


def member_id(subscription: str, topic: int) -> str:
    return f"{subscription}{MEMBER}{topic:x}"


def subscription_of(key: str) -> str:
    """Returns the key of the subtree subscription for a member's key; other keys unchanged."""
    return key.partition(MEMBER)[0]


def key_of(tenant: str, id: str) -> str:
    """Composes the key of a tenant's subscription; raises `NotFound` for an id that contains a comma."""
    if OWNED in id:
        raise NotFound(f'subscription "{id[:80]}" does not exist')
    return f"{tenant}{OWNED}{id}" if tenant else id


def owner_of(key: str) -> str:
    """Returns the tenant of a subscription; empty for the operator."""
    tenant, comma, _ = key.partition(OWNED)
    return tenant if comma else ""


def id_of(key: str) -> str:
    return key.partition(OWNED)[2] or key


def public_id(key: str) -> str:
    """Returns the id that subscribers see: without tenant and member."""
    return id_of(subscription_of(key))


def is_member(id: str) -> bool:
    return MEMBER in id
