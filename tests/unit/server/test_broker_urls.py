"""URLs of brokers: what is accepted, and that a password never appears in what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import InvalidInput, InvalidSink
from edn.formats.broker_url import SCHEMES, BrokerUrl, has_mask, masked, parse, write
from edn.http.sink_policy import redacted, without_password


@pytest.mark.parametrize(
    ("url", "place", "options"),
    [
        ("amqp://h", None, None),
        ("amqp://h/?queue=q", "/", {"queue": "q"}),
        ("amqp://h/%2F?queue=q", "/", {"queue": "q"}),
        ("amqps://h/a%2Fb?exchange=e&routing_key=k.l", "a/b", {"exchange": "e", "routing_key": "k.l"}),
        ("mqtt://h/a/b", "a/b", {}),
        ("mqtt://h//a", "/a", {}),
        ("mqtt://h/a%20b?retain=true", "a b", {"retain": "true"}),
        ("nats://h/a.b", "a.b", {}),
        ("tls://h/a.b?stream=S", "a.b", {"stream": "S"}),
        ("nats://h/", None, None),
        ("nats://h/a.*", None, None),
        ("nats://h/a.%0A", None, None),
        ("mqtt://h/a/%23", None, None),
        ("mqtt://h/$SYS/x", None, None),
        ("mqtt://h:0/x", None, None),
        ("mqtt://h:99999/x", None, None),
        ("mqtt://h/x?retain=yes", None, None),
        ("amqp://h/?queue=q&queue=r", None, None),
        ("amqp://h/?queue=q&exchange=e", None, None),
        ("amqp://h/?queue=" + "q" * 256, None, None),
        ("amqp://h/?queue=q#f", None, None),
        ("amqp:h/?queue=q", None, None),
        ("mqtt://h/\u00a0 x", None, None),
        ("nats://h/a" + "a" * 2048, None, None),
    ],
)
def test_the_url_of_a_sink(url: str, place: str | None, options: dict[str, str] | None) -> None:
    if place is None:
        with pytest.raises(InvalidSink, match="the sink's URL"):
            parse(url, "sink")
    else:
        found = parse(url, "sink")
        assert (found.place, found.options) == (place, options)
        assert parse(write(found), "sink") == found


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("mqtt://h/#", "#"),
        ("mqtt://h/a/+/b", "a/+/b"),
        ("mqtt://h/a/#?client_id=me", "a/#"),
        ("mqtt://h/$share/g/a/+", "$share/g/a/+"),
        ("mqtt://h/a#", None),
        ("mqtt://h/a+/b", None),
        ("mqtt://h/$share//a", None),
        ("nats://h/S?subject=a.*.>&deliver=new&consumer=c", "S"),
        ("nats://h/S?subject=a..b", None),
        ("nats://h/S?deliver=some", None),
        ("nats://h/S?prefetch=10001", None),
        ("amqp://h/v?queue=q&prefetch=5", "v"),
        ("amqp://h/v?exchange=e", None),
    ],
)
def test_the_url_of_a_source(url: str, place: str | None) -> None:
    if place is None:
        with pytest.raises(InvalidInput, match="the source's URL"):
            parse(url, "source")
    else:
        found = parse(url, "source")
        assert found.place == place
        assert parse(write(found), "source") == found


_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1, max_size=20
)


@given(st.sampled_from(sorted(SCHEMES)), _TEXT, st.one_of(st.none(), _TEXT))
def test_what_is_shown_of_a_url_has_no_secret_and_the_rest_stays(
    scheme: str, user: str, password: str | None
) -> None:
    kind, is_secure, port = SCHEMES[scheme]
    secret = "Xx" + (user if password is None else password) + "yY"
    made = BrokerUrl(
        kind=kind,
        is_secure=is_secure,
        host="broker.example.org",
        port=port,
        user=secret if password is None else "Qq" + user,
        password=None if password is None else secret,
        place="v" if kind == "amqp" else "place",
        options={"queue": "q"} if kind == "amqp" else {},
    )
    url = write(made)
    assert parse(url, "sink") == made
    shown = masked(url)
    hidden = url.split("//")[1].split("@")[0].split(":")[-1]
    for text in (shown, without_password(url), redacted(url)):
        assert hidden not in text
    assert shown.partition("@")[2] == url.partition("@")[2]
    assert has_mask(shown)
    assert not has_mask(url)
    with pytest.raises(InvalidSink, match="must contain the password"):
        parse(shown, "sink")


@given(st.text(max_size=60), st.sampled_from(["sink", "source"]))
def test_any_text_is_parsed_or_refused(text: str, role: str) -> None:
    for url in (text, *(f"{scheme}://{text}" for scheme in SCHEMES)):
        try:
            found = parse(url, role)  # type: ignore[arg-type]
        except InvalidInput:
            continue
        assert parse(write(found), role) == found  # type: ignore[arg-type]
