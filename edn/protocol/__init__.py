"""The messages that dispatcher and servers exchange: msgpack over HTTP.

One module per conversation; this page is the theory of all of them. Messages import no I/O.

Theory of operation
-------------------
*Registration.* A server posts `Register` to the dispatcher's `/internal/servers` and then a `Heartbeat`
every `Registered.heartbeat_seconds` to `/internal/servers/{id}/heartbeat`. A `404` to a heartbeat means
"register again" (the dispatcher restarted). `key` is a secret that the server drew when its data folder
was made: the same id with another key is another server, and refused with `409`.

*Storing.* `POST /internal/subscriptions` on a server carries `Store`; the server commits it durably and
inactive, then answers `Stored`. Nothing matches a version of a subscription before the log activates it.

*The stream.* `POST /internal/stream` on a server carries a `Frame`: everything in the offsets
(after, upto] of one log that concerns this server, events already turned into points. The server applies
it in one transaction and answers `FrameAck`. A frame that begins beyond the server's cursor is answered
`409` with the same `FrameAck`, and the dispatcher goes on from the cursor that it names; offsets at or
below the cursor are repeats and dropped.

*Explaining.* `POST /internal/explain` on a server carries `Explain` and is answered `Explained`; `POST
/internal/journey` carries `AskJourney` and is answered `Journey`.

*Moving.* A subscription that goes to another server is stored there as `arriving`, under a version of its
own; then one *move* record a log ends it here and begins it there. The dispatcher asks the old server by
`POST /internal/departures` what of it is still to be delivered (`Departures`, `Departed`), takes what it kept
for a paused one (`/internal/departures/kept`, `KeptAfter`, `Kept`) and whom it told of what
(`/internal/departures/told`, `ToldAfter`, `Told`) to the new one (`/internal/arrivals/kept` and
`/internal/arrivals/told`), and says by `POST /internal/arrivals` (`Arrivals`) that nothing is left before
what was found there. All of these may be repeated.

*Summaries.* `GET /internal/summary` on a server answers `SummarySnapshot`, whose `seq` was read before
anything else was.

*Subscribing anywhere.* A server asks the dispatcher every few seconds, by `GET
/internal/routing-summaries?incarnation=…&since=…`, what all servers' subscriptions look like, in few
rectangles each, and is answered `RoutingSummaries`: advisory, for choosing the host of a subscription.
What a client posts to it goes on to `POST /internal/subscribe` on the dispatcher as `Subscribe`, with
that choice; the answer is that of `POST /v1/subscriptions`, in JSON.

*Consent.* A dispatcher that is called where a sink was told that it may consent (`edn_server.sinks.consent`)
passes that on to the server that asked, by `POST /internal/consents` (`Consented`).

*Streams.* `GET /internal/subscriptions/{id}/events` on a server answers, line by line and without end, what a
subscription without a sink is told (`edn_server.sinks.sse`).

*Other dispatchers.* A dispatcher asks each of the others, again and again, by `POST /internal/changes` with
`PeerPoll`, what has changed there since the place that it has taken over, and is answered `PeerPage`; an
answer waits a moment for something to change. Asking for what follows a place acknowledges what is up to it.

All of these carry `Authorization: Bearer <network secret>`. Times are microseconds since 1970, UTC.
Arrays travel as the little-endian bytes that they are in memory.
"""

from __future__ import annotations

# Callers write `protocol.Frame`; the modules are a matter of order.
from edn.protocol.codec import *  # noqa: F403
from edn.protocol.explain import *  # noqa: F403
from edn.protocol.handover import *  # noqa: F403
from edn.protocol.registration import *  # noqa: F403
from edn.protocol.replay import *  # noqa: F403
from edn.protocol.replication import *  # noqa: F403
from edn.protocol.store import *  # noqa: F403
from edn.protocol.stream import *  # noqa: F403
from edn.protocol.subscribe import *  # noqa: F403
