"""The messages between dispatchers and servers: msgpack over HTTP.

One module per conversation; this page describes all of them. The modules contain no I/O.

Theory of operation
-------------------
*Registration.* A server posts `Register` to the dispatcher's `/internal/servers`, and then a `Heartbeat`
every `Registered.heartbeat_seconds` to `/internal/servers/{id}/heartbeat`. A `404` to a heartbeat means that
the dispatcher restarted and the server must register again. `key` is a random secret of the server's data
folder: the same id with another key is another server and is refused with `409`.

*Storing.* `POST /internal/subscriptions` on a server carries `Store`. The server commits the versions as
inactive and answers `Stored`. A version matches nothing before the log activates it.

*The stream.* `POST /internal/stream` on a server carries a `Frame`: all events, as points, and control
records at the offsets (after, upto] of one log that concern this server. The server applies it in one
transaction and answers `FrameAck`. A frame that begins beyond the server's cursor is answered `409` with the
same `FrameAck`, and the dispatcher continues at the cursor in it; offsets up to the cursor are repeats and
are dropped.

*Explaining.* `POST /internal/explain` on a server carries `Explain` and is answered `Explained`; `POST
/internal/journey` carries `TraceQuery` and is answered `EventTrace`.

*Migration.* A migrating subscription is stored on the new server as `arriving`, under its own version. One
*move* record per log ends it on the old server and begins it on the new one. Then the dispatcher

- asks the old server for the remaining work (`POST /internal/departures`: `Departures`, `Departed`),
- transfers the buffered notifications of a paused subscription (`/internal/departures/kept`: `BufferedQuery`,
  `BufferedPage`; then `/internal/arrivals/kept`),
- transfers the half matches of a sequence (`/internal/departures/progress`: `ProgressQuery`, `ProgressPage`;
  then `/internal/arrivals/progress`),
- and starts the delivery on the new server (`POST /internal/arrivals`: `Arrivals`).

All of these can be repeated.

*Summaries.* `GET /internal/summary` on a server answers `SummarySnapshot`; its `seq` is read before the
summaries.

*Subscribing at a server.* Every few seconds a server requests approximate summaries of all servers by `GET
/internal/routing-summaries?incarnation=…&since=…`, answered `RoutingSummaries`, to choose the host of a
subscription. It forwards a client's request to `POST /internal/subscribe` on the dispatcher as `Subscribe`,
with that suggestion. The response is that of `POST /v1/subscriptions`, in JSON.

*Consent.* A dispatcher forwards the delayed consent of a sink (`edn_server.sinks.consent`) to the server that
requested it, by `POST /internal/consents` (`Consented`).

*Sealed secrets.* `POST /internal/secrets` on a server carries `Reseal`: the server seals its stored secrets
again with its first key, for a while, and answers `SealedSecrets`.

*Streams.* `GET /internal/subscriptions/{id}/events` on a server streams the notifications of a subscription
without a sink, one per line (`edn_server.sinks.sse`).

*Several dispatchers.* `Registered` and `HeartbeatAck` name the URLs of all dispatchers of the network; a
server registers with each of them. Each has a log of its own, and control records are in every open log. A
*follow* record in the other logs announces a new one; a *retire* record ends a log whose dispatcher is gone.

All requests carry `Authorization: Bearer <network secret>`. Times are microseconds since 1970, UTC. Arrays
are little-endian bytes.
"""

from __future__ import annotations

# Callers write `protocol.Frame`.
from edn.protocol.codec import *  # noqa: F403
from edn.protocol.explain import *  # noqa: F403
from edn.protocol.handover import *  # noqa: F403
from edn.protocol.registration import *  # noqa: F403
from edn.protocol.secrets import *  # noqa: F403
from edn.protocol.store import *  # noqa: F403
from edn.protocol.stream import *  # noqa: F403
from edn.protocol.subscribe import *  # noqa: F403
