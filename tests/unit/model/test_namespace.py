"""The topics of a subtree, against a definition by lists of parts, over a small set of names."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import InvalidInput
from edn.model import namespace

#: one level deeper than any name that is asked about, so that a topic is never all of its own subtree
WORLD = [
    tenant + ".".join(parts)
    for tenant in ("", "t/", "u/")
    for depth in range(1, 5)
    for parts in itertools.product("ab", repeat=depth)
]
TENANTS = st.sampled_from(["", "t/", "u/"])
PARTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3)
TOPICS = st.builds(lambda tenant, parts: tenant + ".".join(parts), TENANTS, PARTS)
SUBTREES = st.builds(
    lambda tenant, parts: tenant + ".".join([*parts, "**"]),
    TENANTS,
    st.lists(st.sampled_from("ab"), max_size=3),
)
NAMES = TOPICS | SUBTREES


def meant(name: str) -> set[str]:
    """The topics of the world that a name stands for, by the words of the model."""
    tenant, _, inner = name.rpartition("/")
    parts = inner.split(".")
    if parts[-1] != "**":
        return {name}
    return {
        topic
        for topic in WORLD
        for other, _, rest in [topic.rpartition("/")]
        if other == tenant and rest.split(".")[: len(parts) - 1] == parts[:-1]
    }


@given(wider=NAMES, name=NAMES)
def test_a_name_reaches_another_if_it_stands_for_all_of_its_topics(wider: str, name: str) -> None:
    assert namespace.includes(wider, name) == (meant(wider) >= meant(name))


@given(topic=TOPICS)
def test_the_subtrees_of_a_topic_are_all_that_hold_it_the_smallest_first(topic: str) -> None:
    found = namespace.subtrees_of(topic)
    tenant = topic.rpartition("/")[0]
    every = [
        (f"{tenant}/" if tenant else "") + ".".join([*parts, "**"])
        for depth in range(5)
        for parts in itertools.product("ab", repeat=depth)
    ]
    assert set(found) == {subtree for subtree in every if topic in meant(subtree)}
    sizes = [len(meant(subtree)) for subtree in found]
    assert sizes == sorted(sizes)


@given(subtree=SUBTREES, inner=SUBTREES)
def test_the_stem_begins_the_subtrees_inside_and_no_others_of_the_tenant(subtree: str, inner: str) -> None:
    begins = inner.startswith(namespace.path_prefix(subtree)) and inner.count("/") == subtree.count("/")
    assert begins == namespace.includes(subtree, inner)


@pytest.mark.parametrize("name", ["stocks.**", "**", "a.b-c.d_e.**"])
def test_subtrees_that_are_taken(name: str) -> None:
    assert namespace.is_subtree(name)
    namespace.check_subtree_name(name)


@pytest.mark.parametrize(
    "name",
    ["stocks**", "**.stocks", "stocks.**.nyse", "***", ".**", "stocks..**", "a b.**", "x" * 260 + ".**"],
)
def test_subtrees_that_are_refused_with_what_would_be_right(name: str) -> None:
    assert namespace.is_subtree(name)
    with pytest.raises(InvalidInput, match=r"stocks\.\*\*"):
        namespace.check_subtree_name(name)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a b", "a/b", "ä", "*", "x" * 257])
def test_topic_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"stocks\.nyse\.quotes"):
        namespace.check_topic_name(name)


@given(
    id=st.text("abcXYZ019_.:~@-", min_size=1, max_size=128),
    topic=st.integers(min_value=1, max_value=(1 << 53) - 1),
)
def test_a_member_tells_what_it_is_part_of(id: str, topic: int) -> None:
    made = namespace.member_id(id, topic)
    assert namespace.is_member(made)
    assert not namespace.is_member(id)
    assert namespace.subscription_of(made) == namespace.subscription_of(id) == id
    assert int(made.removeprefix(id + namespace.MEMBER), 16) == topic
