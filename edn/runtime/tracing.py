"""Spans of OpenTelemetry: publish, log, route, match, deliver. Off unless it is configured.

`configure` reads OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT (or …_TRACES_ENDPOINT) turns
spans on, OTEL_SDK_DISABLED off; sampler, headers, service name and resource are as specified there. It needs
the extra `otel`. Otherwise `active` is None, and each step of an event costs one comparison.

The context of an event (`edn.formats.trace_context`) is that of its *publish* span, so every later span is a
child of it, on every process:

    publish                       dispatcher; child of the publisher's traceparent, if there is one
    ├── log                       until the transaction is durable
    ├── route                     one per record of the log
    ├── match                     server; one per frame, from its arrival to its commit
    └── deliver                   server; one per attempt. The POST has its context as `traceparent`

A POST with events of several traces has one *deliver* span in each of them, and no `traceparent` header.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from edn.formats import trace_context

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

logger = structlog.get_logger()

#: most traces of one POST, record or frame that get a span
MOST_TRACES = 32

Attributes = Mapping[str, str | int]


class _Entry(msgspec.Struct):
    traceparent: str = ""
    tracestate: str = ""


class _Body(msgspec.Struct):
    notifications: list[_Entry]


_body = msgspec.json.Decoder(_Body)


class Delivery:
    """The spans of one attempt."""

    def __init__(self, spans: list[Span], context: str) -> None:
        self._spans = spans
        #: trace context of the POST; empty if its events have several
        self.context = context

    def end(self, status: int | None, reason: str | None) -> None:
        from opentelemetry.trace import StatusCode

        for span in self._spans:
            if status is not None:
                span.set_attribute("http.response.status_code", status)
            if status is None or not 200 <= status < 300:
                span.set_status(StatusCode.ERROR, reason)
            span.end()


class Tracing:
    """Makes spans with a tracer. Any thread."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._kinds = SpanKind
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def publish(self, topic: str, context: str) -> Iterator[str]:
        """Opens the span of a publish request; yields the context for its events."""
        from opentelemetry.trace import StatusCode

        span = self._start(f"publish {topic}", context, self._kinds.PRODUCER, {**_SYSTEM, _TOPIC: topic})
        try:
            yield self._context_of(span)
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()

    @contextmanager
    def step(self, name: str, context: str) -> Iterator[None]:
        """Opens the span of a step of an event."""
        span = self._start(name, context, self._kinds.INTERNAL, _SYSTEM)
        try:
            yield
        finally:
            span.end()

    def record(self, name: str, contexts: Iterable[str], began: int, attributes: Attributes) -> None:
        """Makes the spans of a step that is over, one per context; `began` in nanoseconds since 1970."""
        ended = time.time_ns()
        for context in _distinct(contexts):
            span = self._start(name, context, self._kinds.INTERNAL, {**_SYSTEM, **attributes}, began)
            span.end(ended)

    def deliver(self, host: str, body: bytes, shared: str, webhook_id: str) -> Delivery:
        """Opens the spans of an attempt; `shared` is the context that all events of the POST have."""
        contexts = [shared] if shared else _contexts_of(body)
        attributes = {**_SYSTEM, "server.address": host, "messaging.message.id": webhook_id}
        spans = [
            self._start("deliver", context, self._kinds.CLIENT, attributes) for context in _distinct(contexts)
        ]
        return Delivery(spans, self._context_of(spans[0]) if shared else "")

    def _start(
        self, name: str, context: str, kind: Any, attributes: Attributes, began: int | None = None
    ) -> Span:
        from opentelemetry.context import Context

        parent = self._propagator.extract(dict(trace_context.headers(context)), context=Context())
        return self._tracer.start_span(name, parent, kind, attributes, start_time=began)

    def _context_of(self, span: Span) -> str:
        found = span.get_span_context()
        state = found.trace_state.to_header()
        parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
        return f"{parent} {state}" if state else parent


_TOPIC = "messaging.destination.name"
_SYSTEM: Attributes = {"messaging.system": "edn"}

#: None: spans are off
active: Tracing | None = None


def configure(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Turns spans on if OpenTelemetry is configured; OTEL_SERVICE_NAME replaces the name `service`."""
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    is_off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    )
    if is_off or not any(environment.get(name) for name in endpoints):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        logger.warning("spans_off", reason=f'{error.name} is not installed; run `pip install "edn[otel]"`')
        return
    name = environment.get("OTEL_SERVICE_NAME") or service
    start(OTLPSpanExporter(), name)
    logger.info("spans_on", service=name)


def start(exporter: SpanExporter, service: str, *, batch: bool = True) -> None:
    """Turns spans on with an exporter; without `batch` each span is exported when it ends."""
    global active
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    # Not the global provider: other libraries of this process must not make spans by it.
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter) if batch else SimpleSpanProcessor(exporter))
    active = Tracing(provider.get_tracer("edn"))


def stop() -> None:
    """Turns spans off."""
    global active
    active = None


def _distinct(contexts: Iterable[str]) -> list[str]:
    return [context for context in dict.fromkeys(contexts) if context][:MOST_TRACES]


def _contexts_of(body: bytes) -> list[str]:
    try:
        entries = _body.decode(body).notifications
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
    ):  # such as the end of a subscription
        return []
    return [f"{one.traceparent} {one.tracestate}".strip() for one in entries]
