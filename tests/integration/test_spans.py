"""Spans of OpenTelemetry, as a collector gets them from real processes; and none without a collector."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from edn import Client
from tests.network import Engine, Hook, Network, until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = PARENT.split("-")[1]


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP and keeps the spans, with the name of their service."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[tuple[str, Span]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, trace: str) -> list[tuple[str, Span]]:
        return [(service, span) for service, span in list(self.spans) if span.trace_id.hex() == trace]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            [service] = [
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            ]
            for scope in resource.scope_spans:
                self.server.spans += [(service, span) for span in scope.spans]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def network(
    engine: Engine, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    running = engine.network(tmp_path_factory.mktemp("network"), 1, environment=environment)
    try:
        running.start()
        yield running
    finally:
        running.close()


def test_an_event_is_followed_from_the_request_to_the_webhook(
    network: Network, collector: Collector, hook: Hook
) -> None:
    with Client(network.url) as client:
        client.create_topic("spans", {"n": "integer"})
        client.subscribe("spans", url=hook.url("/spans"))
    answer = network.http.post("/v1/topics/spans/events", json={"n": 1}, headers={"traceparent": PARENT})
    assert answer.status_code == 202
    names = {"publish spans", "log", "route", "match", "deliver"}
    until("the spans", lambda: {span.name for _, span in collector.of(TRACE)} >= names)
    spans = {span.name: (service, span) for service, span in collector.of(TRACE)}
    assert {name: service for name, (service, _) in spans.items()} == {
        "publish spans": "edn-dispatcher",
        "log": "edn-dispatcher",
        "route": "edn-dispatcher",
        "match": "edn-server",
        "deliver": "edn-server",
    }
    published = spans["publish spans"][1]
    assert published.parent_span_id.hex() == PARENT.split("-")[2], "a child of the publisher's span"
    for name in names - {"publish spans"}:
        span = spans[name][1]
        assert span.parent_span_id == published.span_id, name
        assert published.start_time_unix_nano <= span.end_time_unix_nano, name
    [(headers, body)] = hook.at("/spans")
    delivered = spans["deliver"][1].span_id.hex()
    assert headers["traceparent"] == f"00-{TRACE}-{delivered}-01", (
        "the receiver's span is a child of the delivery"
    )
    assert f'"traceparent":"00-{TRACE}-{published.span_id.hex()}-01"'.encode() in body


def test_a_failed_attempt_is_an_error_and_a_publisher_needs_no_trace(
    network: Network, collector: Collector, hook: Hook
) -> None:
    hook.status["/fails"] = 503
    with Client(network.url) as client:
        client.create_topic("failing", {"n": "integer"})
        client.subscribe("failing", url=hook.url("/fails"))
        client.publish("failing", {"n": 1})

    def failed() -> list[Span]:
        return [span for _, span in list(collector.spans) if span.name == "deliver" and span.status.code == 2]

    [first, *_] = until("the failed attempt", failed)
    assert first.status.message == "it answered 503"
    spans = until(
        "its trace",
        lambda: [one for _, one in collector.of(first.trace_id.hex()) if one.name == "publish failing"],
    )
    assert not spans[0].parent_span_id, "a trace of its own"
    hook.status["/fails"] = 204


def test_a_post_with_events_of_several_traces_is_in_each_of_them(
    network: Network, collector: Collector, hook: Hook
) -> None:
    hook.status["/mixed"] = 503
    with Client(network.url) as client:
        client.create_topic("mixed", {"n": "integer"})
        made = client.subscribe("mixed", url=hook.url("/mixed"))
        client.pause(made.id)
        traces = [f"{number:032x}" for number in (1, 2)]
        for trace in traces:
            headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            assert network.http.post("/v1/topics/mixed/events", json={"n": 1}, headers=headers).is_success
        hook.status["/mixed"] = 204
        until("both to be buffered", lambda: client.subscription(made.id).delivery.matched == 2)  # type: ignore[union-attr]
        client.resume(made.id)
        until("the delivery", lambda: hook.at("/mixed", 204))
    for trace in traces:
        until("its spans", lambda trace=trace: "deliver" in {span.name for _, span in collector.of(trace)})  # type: ignore[misc]


def test_nothing_of_opentelemetry_is_loaded_without_its_variables() -> None:
    code = (
        "import sys\n"
        "from edn.runtime import tracing\n"
        "tracing.configure('edn', {'OTEL_SERVICE_NAME': 'x'})\n"
        "on = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x'}\n"
        "tracing.configure('edn', on | {'OTEL_SDK_DISABLED': 'true'})\n"
        "tracing.configure('edn', on | {'OTEL_TRACES_EXPORTER': 'none'})\n"
        "assert tracing.active is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
