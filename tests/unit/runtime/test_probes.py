"""A process that waits answers health checks."""

from __future__ import annotations

import httpx

from edn.runtime.probes import WaitingProbes
from edn.runtime.process import bind, url_of


def test_a_waiting_process_is_alive_and_not_ready() -> None:
    listener = bind("127.0.0.1", 0)
    url = url_of(listener)
    with WaitingProbes(listener, "this process is a spare"):
        for _ in range(3):
            assert httpx.get(f"{url}/livez").json() == {"status": "alive"}
            answer = httpx.get(f"{url}/readyz")
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["detail"] == "not ready: this process is a spare"
    assert listener.fileno() >= 0, "the service uses the socket afterwards"
    listener.close()
