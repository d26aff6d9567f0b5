"""Sinks: from the form in a request to the stored URL, and back.

The URL of a stream, which has no sink, is `stream:` and the id of the subscription.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dispatcher.store.directory import Subscription
from edn.errors import InvalidSink
from edn.formats import broker_url, cloudevents, sink_settings
from edn.formats.cloudevents import SinkAddress
from edn.formats.consent import PREFIX
from edn.formats.consent import require_consent as with_consent
from edn.formats.sink_settings import Credentials, Retry, SinkSettings

_CLOUDEVENTS = "cloudevents-"
_STREAM = "stream:"


def stream_url(subscription: str) -> str:
    return _STREAM + subscription


def is_stream(url: str) -> bool:
    return url.startswith(_STREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    url: str
    recipient: str | None = None
    format: str = "json"
    consent: bool | None = None
    secret: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    credentials: Credentials | None = None
    #: type of credentials that stay as they are
    kept_credentials: str = ""
    timeout: float | None = None
    retry: Retry | None = None
    rate: float | None = None
    ordered: bool = True


#: kinds of sinks that are HTTP requests, by the URL's scheme
_HTTP = ("http:", "https:", "soap:")


def with_credentials_of_url(sink: Sink) -> Sink:
    """Return a broker's sink with user and password of its URL as credentials, which are stored sealed.

    The URL is stored in clear and shown. Raises `InvalidSink`.
    """
    target = target_of(sink.url)
    if not broker_url.is_broker(target):
        return sink
    url, credentials = broker_url.split_credentials(target)
    if credentials is None:
        return sink
    if sink.credentials is not None or sink.kept_credentials:
        raise InvalidSink(
            "the sink's URL must not contain a user or password together with sink.credentials",
            pointer="/url",
        )
    if url != sink.url and sink.url.startswith(f"{cloudevents.SCHEME}:"):
        url = replace(SinkAddress.parse(sink.url), to=url).url()
    return replace(sink, url=url, credentials=credentials)


def settings_of(sink: Sink) -> SinkSettings:
    """Check the settings of a sink; return their public part, without an id. Raises `InvalidSink`."""
    kind = sink.kept_credentials or (
        "" if sink.credentials is None else sink_settings.type_of(sink.credentials)
    )
    target = target_of(sink.url)
    is_http, is_broker = target.lower().startswith(_HTTP), broker_url.is_broker(target)
    if sink.headers and not is_http:
        raise InvalidSink("headers must be given with an http or https sink only", pointer="/headers")
    for name, given in (("credentials", kind), ("timeout", sink.timeout)):
        if given and not is_http and not is_broker:
            raise InvalidSink(
                f"{name} must be given with an http or https sink or a broker only", pointer=f"/{name}"
            )
    if kind and is_broker:
        broker_url.check_credentials(target, kind)
    if sink.credentials is not None:
        sink_settings.check_credentials(sink.credentials, is_broker=is_broker)
    if kind == "certificate" and is_http and not target.lower().startswith("https:"):
        raise InvalidSink(
            "credentials of type certificate must be given with an https:// sink only", pointer="/credentials"
        )
    headers = sink_settings.check_headers(sink.headers, sink.credentials)
    if kind in ("bearer", "basic", "oauth2") and "authorization" in headers:
        raise InvalidSink(
            'header "authorization" must not be given together with credentials, which set it',
            pointer="/headers/authorization",
        )
    return SinkSettings(
        headers=headers,
        credentials=kind,
        timeout=None if sink.timeout is None else sink_settings.check_timeout(sink.timeout),
        retry=None if sink.retry is None or sink.retry == Retry() else sink_settings.check_retry(sink.retry),
        rate=None if sink.rate is None else sink_settings.check_rate(sink.rate),
        ordered=sink.ordered,
    )


def encode_settings(settings: SinkSettings) -> str:
    """Return settings as the directory stores them."""
    return "" if settings.is_default else sink_settings.encode(settings)


def stored_url(sink: Sink, *, require_consent: bool) -> str:
    """Return the URL to store; `require_consent`: even if the subscriber does not ask for consent."""
    consent = require_consent or bool(sink.consent)
    if consent and broker_url.is_broker(sink.url):
        raise InvalidSink("a sink at a broker cannot be asked for its consent", pointer="/url")
    if sink.format.startswith(_CLOUDEVENTS):
        return SinkAddress(sink.format.removeprefix(_CLOUDEVENTS), sink.url, consent).url()
    return with_consent(sink.url) if consent else sink.url


def target_of(url: str) -> str:
    """Return the URL that a subscriber gave, of a stored one."""
    if url.startswith(f"{cloudevents.SCHEME}:"):
        return SinkAddress.parse(url).to
    return url.removeprefix(PREFIX)


def view(found: Subscription, secret: str | None) -> dict[str, Any] | None:
    """Return the sink of a subscription for an answer, None for a stream; `secret`: a newly generated one."""
    if is_stream(found.url):
        return None
    shown: dict[str, Any] = {"url": target_of(found.url), "recipient": found.recipient}
    if found.url.startswith(f"{cloudevents.SCHEME}:"):
        address = SinkAddress.parse(found.url)
        shown["format"] = _CLOUDEVENTS + address.mode
        if address.consent:
            shown["consent"] = True
    elif found.url.startswith(PREFIX):
        shown["consent"] = True
    shown["url"] = broker_url.masked(shown["url"])
    if found.settings:
        shown |= sink_settings.decode(found.settings).shown()
    if secret is not None:
        shown["secret"] = secret
    return shown


def with_kept_headers(sink: Sink, found: Subscription) -> Sink:
    """Return a sink with the stored values of headers that `view` hides, if its URL stays.

    Otherwise whoever may change a subscription could have them sent to another host.
    """
    if sink_settings.MASK not in sink.headers.values() or target_of(found.url) != target_of(sink.url):
        return sink
    stored = sink_settings.decode(found.settings).headers
    kept = {
        name: stored.get(name.lower(), value) if value == sink_settings.MASK else value
        for name, value in sink.headers.items()
    }
    return replace(sink, headers=kept)
