"""The HTTP client for control calls between processes: one per process, with the network's secret.

It streams answers, decodes JSON and has timeouts per call, at a higher cost than `edn.http.client`, which the
hot paths use. Only this module of the services imports httpx.
"""

from __future__ import annotations

import ssl

import httpx

ControlClient = httpx.AsyncClient
ControlAnswer = httpx.Response
#: replaces the network in tests
Transport = httpx.AsyncBaseTransport
#: bounds of one call, in seconds: `Timeout(total, connect=…)`
Timeout = httpx.Timeout

#: any failure of a call
CallFailed = httpx.HTTPError
#: no complete answer arrived
TransportFailed = httpx.TransportError
#: the other process could not be connected to, so the call was not sent
NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout)


def open_client(
    secret: str, transport: Transport | None = None, tls: ssl.SSLContext | bool = True
) -> ControlClient:
    """Opens a client that sends the network's secret; the caller closes it."""
    return httpx.AsyncClient(
        headers={"authorization": f"Bearer {secret}"},
        timeout=httpx.Timeout(30.0, connect=3.0),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
        transport=transport,
        verify=tls,
    )


def failure_reason(error: BaseException) -> str:
    """Describes a failed call; a process closes the connection of a caller whose certificate it refuses."""
    reason = f"{type(error).__name__}: {error}"
    is_https = isinstance(error, httpx.RemoteProtocolError) and error.request.url.scheme == "https"
    return f"{reason} (is the certificate of this process one of its --tls-ca?)" if is_https else reason


def problem_detail(answer: ControlAnswer) -> str:
    """Returns the detail of a problem, the beginning of another answer, or its status."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or f"status {answer.status_code}"


def exact_url(url: str, target: bytes) -> httpx.URL:
    """Returns a URL whose path and query are sent unchanged, byte by byte."""
    return httpx.URL(url).copy_with(raw_path=target)
