"""Settings of a sink that are refused: the settings, the pointer to the place, part of the message."""

from __future__ import annotations

from typing import Any

TOKEN = "a-bearer-token-that-nobody-may-read"
BEARER = {"type": "bearer", "token": TOKEN}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"headers": {"a b": "x"}}, "/sink/headers/a b", "the name of a header must be"),
    ({"headers": {"": "x"}}, "/sink/headers/", "the name of a header must be"),
    ({"headers": {"x": "a\r\nevil: 1"}}, "/sink/headers/x", "without control characters"),
    ({"headers": {"x": "a\x00"}}, "/sink/headers/x", "without control characters"),
    ({"headers": {"x": "naïve"}}, "/sink/headers/x", "must be printable ASCII"),
    ({"headers": {"x": ""}}, "/sink/headers/x", "must be printable ASCII"),
    ({"headers": {"x": "a" * 5000}}, "/sink/headers/x", "at most 4096"),
    ({"headers": {f"x{n}": "a" for n in range(33)}}, "/sink/headers", "at most 32"),
    ({"headers": {f"x{n}": "a" * 4000 for n in range(5)}}, "/sink/headers", "at most 16384 bytes"),
    ({"headers": {"X": "a", "x": "b"}}, "/sink/headers/x", "unique"),
    ({"headers": {"x": 5}}, "/sink/headers/x", ""),
    *(
        ({"headers": {name: "x"}}, f"/sink/headers/{name}", "must not be set")
        for name in ("Host", "content-length", "Content-Type", "Transfer-Encoding", "connection", "upgrade")
    ),
    ({"headers": {"Webhook-Id": "x"}}, "/sink/headers/Webhook-Id", "must not be set"),
    ({"headers": {"traceparent": "x"}}, "/sink/headers/traceparent", "must not be set"),
    (
        {"headers": {"Authorization": "x"}, "credentials": BEARER},
        "/sink/headers/Authorization",
        "together with credentials",
    ),
    ({"credentials": {"type": "magic"}}, "/sink/credentials/type", "bearer"),
    ({"credentials": {"token": "x"}}, "/sink/credentials/type", ""),
    ({"credentials": {"type": TOKEN}}, "/sink/credentials/type", ""),
    ({"credentials": {"type": "basic", "user": TOKEN, "password": 5}}, "/sink/credentials/password", ""),
    ({"credentials": {"type": "bearer", "token": TOKEN * 3000}}, "/sink/credentials/token", ""),
    ({"credentials": {**BEARER, "extra": 1}}, "/sink/credentials/extra", ""),
    ({"credentials": {"type": "bearer"}}, "/sink/credentials", "must be complete"),
    ({"credentials": {"type": "bearer", "token": "a b"}}, "/sink/credentials/token", "without spaces"),
    ({"credentials": {"type": "bearer", "token": "x", "user": "y"}}, "/sink/credentials/user", "type bearer"),
    ({"credentials": {"type": "basic", "user": "a"}}, "/sink/credentials/password", "must be given"),
    (
        {"credentials": {"type": "basic", "user": "a:b", "password": "x"}},
        "/sink/credentials/user",
        "must not contain a colon",
    ),
    (
        {"credentials": {"type": "api_key", "header": "host", "value": "x"}},
        "/sink/credentials/header",
        "must not be set",
    ),
    (
        {
            "credentials": {
                "type": "oauth2",
                "token_url": "https://10.0.0.1/",
                "client_id": "a",
                "client_secret": "b",
            }
        },
        "/sink/credentials/token_url",
        "the token endpoint's address must be public",
    ),
    (
        {
            "credentials": {
                "type": "oauth2",
                "token_url": "mailto:a@b.c",
                "client_id": "a",
                "client_secret": "b",
            }
        },
        "/sink/credentials/token_url",
        "must begin with https://",
    ),
    (
        {"credentials": {"type": "certificate", "certificate": "x", "key": "y"}},
        "/sink/credentials/certificate",
        "PEM",
    ),
    ({"retry": {"schedule": [1, 2]}}, "/sink/retry", "must have give_up"),
    ({"retry": {"schedule": [], "give_up": "1h"}}, "/sink/retry/schedule", "1 to 50 delays"),
    ({"retry": {"schedule": [1] * 51, "give_up": "1h"}}, "/sink/retry/schedule", "1 to 50 delays"),
    ({"retry": {"schedule": [0], "give_up": "1h"}}, "/sink/retry/schedule/0", "from 0.1 to"),
    ({"retry": {"schedule": ["soon"], "give_up": "1h"}}, "/sink/retry/schedule/0", "must be seconds"),
    ({"retry": {"schedule": [1], "give_up": "P365D"}}, "/sink/retry/give_up", "from 1 to 604800"),
    ({"retry": {"schedule": [1], "give_up": "forever"}}, "/sink/retry/give_up", "must be seconds"),
    ({"retry": {"exponential": {"first": 1, "longest": 60}}}, "/sink/retry", "must have give_up"),
    (
        {"retry": {"exponential": {"first": 1, "factor": 0.5, "longest": 60}, "give_up": 60}},
        "/sink/retry/exponential/factor",
        "from 1 to 100",
    ),
    (
        {"retry": {"exponential": {"first": 10, "longest": 5}, "give_up": 60}},
        "/sink/retry/exponential/longest",
        "from 10 to",
    ),
    (
        {"retry": {"schedule": [1], "exponential": {"first": 1, "longest": 5}, "give_up": 60}},
        "/sink/retry",
        "not both",
    ),
    ({"retry": {"permanent": [200]}}, "/sink/retry/permanent/0", "from 300 to 599"),
    ({"retry": {"permanent": [429]}}, "/sink/retry/permanent/0", "other than"),
    ({"retry": {"permanent": [404, 404]}}, "/sink/retry/permanent", "repeat"),
    ({"retry": {"attempts": 3}}, "/sink/retry/attempts", ""),
    ({"timeout": 0}, "/sink/timeout", "from 0.1 to 60"),
    ({"timeout": "1h"}, "/sink/timeout", "from 0.1 to 60"),
    ({"timeout": True}, "/sink/timeout", "must be seconds"),
    ({"rate": 0}, "/sink/rate", "from 0.001 to"),
    ({"rate": -1}, "/sink/rate", "from 0.001 to"),
    ({"rate": 1e9}, "/sink/rate", "to 100000"),
    ({"ordered": "no"}, "/sink/ordered", ""),
    ({"unknown": 1}, "/sink/unknown", ""),
]
