"""The messages that dispatcher and servers exchange: msgpack over HTTP.

It is one module, however long: what one side writes the other reads, and whoever changes a message must see
all that it goes with.

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

import functools
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from edn.errors import CorruptMessage
from edn.webhooks import KeyRing

#: the media type of all of these
MSGPACK = "application/msgpack"
#: that of streams: a line of JSON each
LINES = "application/x-ndjson"

#: integers that a database and a column of numbers can hold; msgpack has larger ones
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: columns of a row of points
Width = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]

Kind = Literal["activate", "deactivate", "change", "move", "renew", "pause", "resume", "rotate", "join"]


class TopicInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a server must know of a topic to bind its filters."""

    #: unique for ever; a topic that is deleted and made again gets another
    uid: Int64
    #: empty is the operator
    tenant: str
    name: str
    #: (name, type) in column order; append-only, so a shorter point is an older one
    columns: list[tuple[str, str]]
    #: name or URI of the matcher
    engine: str


class StoreItem(msgspec.Struct, frozen=True, array_like=True):
    """One version of one subscription."""

    id: str
    #: grows with each change of filter, sink or host: the log's time then, or one more than before
    version: Int64
    #: whose it is; empty is the operator. Part of the address that it is delivered to
    tenant: str
    owner: str
    #: the filter in its JSON form; None is everything
    filter: Any
    url: str
    recipient: str | None
    #: microseconds; None is never
    expires: Int64 | None
    #: id of the key ring that its notifications are signed with; empty is none
    ring: str = ""
    #: it comes from another server: what is found here waits until that one has delivered its own
    arriving: bool = False


class Store(msgspec.Struct, frozen=True):
    log: str
    #: how often this log's dispatcher has started; a store from an earlier life is refused
    incarnation: Int64
    topic: TopicInfo
    items: list[StoreItem]
    #: those that the items name
    rings: list[KeyRing] = []
    #: sinks that must consent are asked first, and nothing is stored if one does not
    asking: bool = False


class Stored(msgspec.Struct, frozen=True):
    epoch: Int64
    #: the server's store counter, taken in the transaction that stored the items
    seq: Int64


class Control(msgspec.Struct, frozen=True):
    """A record that changes subscriptions. Which fields are set depends on `kind`.

    activate    `versions`: each (id, version) matches from the next offset on; what is found of those in
                `replays` waits until the pages of their past have come (`ReplayPage`)
    pause       `ids`: what matches after this offset is kept and not sent
    resume      `ids`: what was kept goes out, to the sink of now, before what matches after this offset
    change      `versions`: the older version matches up to this offset, the named one after it
    move        the same where the older one is on another server: each of the two has this record, beside
                each other in the log, and does its part. What begins by it may have `replays`, too
    deactivate  `ids`: the active version ends here, or what is stored if none is active, so that a
                subscription made anew under an id whose end is yet to be read is not lost; `versions`: just
                these end
    renew       `expiries`: new expiry of each id in this log, None for never
    join        what a log that was left had active is active from here on if this log never activated it;
                what an earlier incarnation stored and no log has activated by now is dropped
    rotate      `rings`: the secrets that count from now on
    """

    offset: Int64
    time: Int64
    kind: Kind
    versions: list[tuple[str, Int64]] = []
    ids: list[str] = []
    expiries: list[tuple[str, Int64 | None]] = []
    incarnation: Int64 = 0
    rings: list[KeyRing] = []
    replays: list[tuple[str, Int64]] = []
    #: of pause and resume, where there are several dispatchers: which state of the subscription it is
    revision: Int64 = 0
    #: of deactivate: why, for sinks that want to be told (`edn.soap`); empty if the subscriber asked for it
    end: str = ""


class Segment(msgspec.Struct, frozen=True):
    """The events of one topic in a frame, column by column, in the order of their offsets."""

    topic: Int64
    #: int64 each
    offsets: bytes
    #: int64 each: the log's time, which expiry is compared with
    times: bytes
    #: int64 each: the event's own time, which the subscriber is told
    stamps: bytes
    #: float64, row-major; rows have `width` columns
    points: bytes
    width: Width
    #: empty where no publisher chose one: the ids are then made from log and offset
    ids: list[str]
    #: the attributes as JSON, as they go into the notification: a line each
    lines: bytes
    #: the trace context of each (`edn.tracing`); empty where none has one
    traces: list[str] = []


class Frame(msgspec.Struct, frozen=True):
    log: str
    incarnation: Int64
    after: Int64
    upto: Int64
    controls: list[Control]
    segments: list[Segment]


class FrameAck(msgspec.Struct, frozen=True):
    epoch: Int64
    cursor: Int64
    #: rows that are stored but no longer needed by the summary: a hint to ask for a snapshot
    shrinkable: Int64 = 0
    #: (event, subscription) pairs and events with at least one pair, for the dispatcher's counters
    matched: Int64 = 0
    useful: Int64 = 0


class ReplayPage(msgspec.Struct, frozen=True):
    """Events of before a subscription's activation that were still available then; for it alone.

    Pages are outside the stream and its cursor. A page continues at the position that the server has
    committed for (subscription, version, log), or it is a repeat and dropped.
    """

    log: str
    subscription: str
    version: Int64
    #: it holds what there is in the offsets (after, upto]
    after: Int64
    upto: Int64
    segment: Segment | None
    final: bool


class ReplayAck(msgspec.Struct, frozen=True):
    #: where the next page begins
    position: Int64
    done: bool


class Explain(msgspec.Struct, frozen=True):
    """What would an event be to a server? Nothing is stored, counted or sent."""

    log: str
    topic: Int64
    #: the log's time, which expiry is compared with
    time: Int64
    #: float64 each
    point: bytes
    #: the attributes as JSON
    line: bytes
    #: subscriptions that are named at most
    limit: Int64


class Explanation(msgspec.Struct, frozen=True, array_like=True):
    """One subscription whose rectangles contain the event."""

    id: str
    #: the exact predicate holds; if not, the rectangle was only a cover
    matches: bool
    #: what decided that, in the filter language's text form
    clauses: list[str]
    #: notifications are kept, not sent
    paused: bool


class Explained(msgspec.Struct, frozen=True):
    matched: Int64
    subscriptions: list[Explanation]


class Departures(msgspec.Struct, frozen=True):
    """Which subscriptions have moved away, each with the version that it goes on as elsewhere."""

    versions: list[tuple[str, Int64]]
    #: those of which nothing that was kept is needed any more
    forget: list[str] = []


class Departed(msgspec.Struct, frozen=True):
    #: every log has ended them here: nothing is found for them any more
    ended: list[str]
    #: of these, those that notifications are kept for
    keeping: list[str]
    #: of these, those that nothing waits for that is to be delivered from here
    delivered: list[str]


class KeptAfter(msgspec.Struct, frozen=True):
    subscription: str
    #: how many rows of what is kept were taken before
    after: Int64


class KeptEvent(msgspec.Struct, frozen=True, array_like=True):
    topic: Int64
    id: str
    stamp: Int64
    #: the attributes as JSON
    body: bytes
    #: the trace context that it came with
    trace: str = ""


class Kept(msgspec.Struct, frozen=True):
    """What a server kept for a subscription that was paused when it moved: rows (after, upto], in order."""

    subscription: str
    version: Int64
    after: Int64
    upto: Int64
    events: list[KeptEvent]
    #: nothing follows
    final: bool


class ToldAfter(msgspec.Struct, frozen=True):
    subscriptions: list[str]
    #: topic and id of the last event of the page before
    after: tuple[Int64, str]


class Told(msgspec.Struct, frozen=True):
    """Which events, whose ids their publishers chose, were told to whom: another log may bring them again."""

    #: topic, id, the log's time, places in `subscriptions` of the question
    events: list[tuple[Int64, str, Int64, list[Int64]]]
    subscriptions: list[str]
    #: where the next page begins; None: there is none
    following: tuple[Int64, str] | None


class Arrivals(msgspec.Struct, frozen=True):
    """Subscriptions of which the server that they come from has nothing to deliver any more."""

    versions: list[tuple[str, Int64]]


class Consented(msgspec.Struct, frozen=True):
    """A sink has consented later; answered `Taken`."""

    #: proof that it was asked
    token: str
    #: value of WebHook-Allowed-Rate; empty if there was none
    rate: str = ""


class Taken(msgspec.Struct, frozen=True):
    #: how many rows were taken of what was kept elsewhere; of no meaning elsewhere
    position: Int64 = 0
    #: what it is about is not awaited here (any more)
    unknown: bool = False


class AskJourney(msgspec.Struct, frozen=True):
    """What became of an event?"""

    log: str
    offset: Int64


class JourneyAttempt(msgspec.Struct, frozen=True, array_like=True):
    """A POST that told of it; as `edn_server.delivery.attempts.Attempt`."""

    time: Int64
    webhook_id: str
    status: Int64 | None
    reason: str | None
    seconds: float
    outcome: str


class JourneyRecipient(msgspec.Struct, frozen=True, array_like=True):
    """A subscription that it matched; empty if that has ended since."""

    subscription: str
    attempts: list[JourneyAttempt]


class Journey(msgspec.Struct, frozen=True):
    #: when the server had applied it; None if it is not known there, or not any more
    committed: Int64 | None
    recipients: list[JourneyRecipient]


class SummarySnapshot(msgspec.Struct, frozen=True):
    epoch: Int64
    seq: Int64
    #: topic uid → the bytes of its `edn.summary.Summary`
    topics: dict[Int64, bytes]


class Register(msgspec.Struct, frozen=True):
    id: str
    url: str
    key: str
    epoch: Int64
    #: log id → offset
    cursors: dict[str, Int64]
    subscriptions: Int64
    #: where it is, in coordinates that subscribers use too; empty where it does not matter
    location: list[float] = []
    #: network distance from the dispatcher, in a unit of the operator's own
    distance: float = 1.0


class Registered(msgspec.Struct, frozen=True):
    log: str
    incarnation: Int64
    heartbeat_seconds: float


class Heartbeat(msgspec.Struct, frozen=True):
    key: str
    epoch: Int64
    #: notifications waiting to be delivered
    backlog: Int64
    #: share of one core used since the last one, 0..1
    cpu: float
    #: notifications that sinks took, since the server's start
    notified: Int64 = 0
    #: seconds by which its wall clock is suspect (`edn.clock`); None: it is not
    suspect: float | None = None


class PlacementRule(msgspec.Struct, frozen=True, array_like=True):
    """How the network chooses the host of a new subscription; see `partitioning.placement.Settings`."""

    policy: str
    threshold: Int64 | None
    factor: float | None
    bound: Int64
    spread: Int64


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A server that can host subscriptions."""

    id: str
    subscriptions: Int64
    location: list[float]
    distance: float


class Boxes(msgspec.Struct, frozen=True, array_like=True):
    """The rectangles that stand for one server's subscriptions of one topic; none if it has none."""

    topic: Int64
    server: str
    #: float64, row-major; rows have `width` columns
    lo: bytes
    hi: bytes
    width: Width


class RoutingSummaries(msgspec.Struct, frozen=True):
    """What one has to know to choose a host."""

    incarnation: Int64
    #: what `since` of the next question is
    version: Int64
    rule: PlacementRule
    topics: list[TopicInfo]
    #: those that are ready
    peers: list[Peer]
    #: what has changed since; all there is if `since` was of another incarnation
    boxes: list[Boxes]


class Client(msgspec.Struct, frozen=True):
    """A client that called a server: where it is, and the fields of its request that say who it is."""

    address: str = ""
    authorization: str = ""
    host: str = ""
    origin: str = ""
    #: Sec-Fetch-Site
    site: str = ""


class Subscribe(msgspec.Struct, frozen=True):
    #: as the client sent it: one subscription or an array of them
    body: bytes
    #: a host for each of them, in their order, or none; empty if there is nothing to say of any
    suggested: list[str | None]
    client: Client = Client()


class PeerPoll(msgspec.Struct, frozen=True):
    """A dispatcher asks another one what has changed."""

    log: str
    incarnation: Int64
    #: everything up to this place of the other's changes is in this log
    after: Int64
    #: log of the dispatcher that it takes for the one that carries out changes; empty is none
    sees: str


class ServerState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    url: str
    #: hash of its key
    key: str
    epoch: Int64


class TopicState(msgspec.Struct, frozen=True, array_like=True):
    uid: Int64
    name: str
    #: of the schema
    revision: Int64
    #: both as JSON
    columns: str
    attributes: str
    engine: str
    created: Int64
    availability: float
    #: of the topic as a whole
    changed: Int64
    #: its engine was chosen for this very name
    chosen: bool = False


class RingState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    tenant: str
    owner: str
    url: str
    #: fingerprint of a secret that the subscriber gave
    given: str
    current: str
    previous: str | None
    until: Int64
    version: Int64

    def __repr__(self) -> str:
        return f"RingState({self.id!r}, …)"


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """A row of the directory, and what its dispatcher knows of how it was stored."""

    id: str
    #: grows with every change of any field
    revision: Int64
    version: Int64
    owner: str
    topic: Int64
    filter: Any
    #: those that the filter names
    attributes: list[str]
    url: str
    recipient: str | None
    expires: Int64 | None
    server: str
    created: Int64
    serial: Int64
    location: list[float] | None
    ring: str
    paused: bool
    #: the server's answer to the store of this version, if it is known
    epoch: Int64 | None
    seq: Int64 | None
    #: from when on it wants to hear what is available; None is from now
    since: Int64 | None
    #: its expiry is another than that which the server was given with this version
    renewed: bool
    #: the server that it was on before, if it has moved
    former: str | None = None
    #: path of the subtree that it is to; it has no topic (0) and no server then: these are its members'
    subtree: str | None = None


class BindingState(msgspec.Struct, frozen=True, array_like=True):
    """What an operator has bound to a name."""

    #: path of a topic or a subtree
    name: str
    #: that may host its subscriptions; None: any
    servers: list[str] | None
    #: that topics inherit; None: none
    engine: str | None
    created: Int64
    revision: Int64


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    """An API key as the dispatchers keep it."""

    id: str
    #: SHA-256 of the whole key
    digest: bytes
    name: str
    tenant: str
    #: JSON
    scopes: str
    quota: str
    created: Int64
    expires: Int64 | None
    revision: Int64


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """Something has ended: a topic, a subscription, a key or a binding (`change_feed.Kind`)."""

    kind: Int64
    name: str
    revision: Int64
    time: Int64
    version: Int64 | None
    server: str | None
    #: of a subscription that wanted to hear what was available, from when on, of which topic and inside
    #: which filter: one that came and went while a dispatcher was away is told that one's part of it
    since: Int64 | None = None
    topic: Int64 | None = None
    filter: Any = None


class PeerPage(msgspec.Struct, frozen=True):
    """What has changed in the places (after, upto], as it is now."""

    log: str
    incarnation: Int64
    after: Int64
    upto: Int64
    #: no change is answered before the asking one has it, for some seconds from this answer on
    granted: bool
    ready: bool
    sees: str
    servers: list[ServerState] = []
    topics: list[TopicState] = []
    rings: list[RingState] = []
    subscriptions: list[SubscriptionState] = []
    keys: list[KeyState] = []
    gone: list[Gone] = []
    bindings: list[BindingState] = []


_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


Message = TypeVar("Message", bound=msgspec.Struct)


class Decoder(Generic[Message]):
    """Reads messages of one kind; `CorruptMessage` says what is wrong with anything else."""

    def __init__(self, kind: type[Message]) -> None:
        self._kind = kind.__name__
        self._decoder = msgspec.msgpack.Decoder(kind)

    def decode(self, data: bytes) -> Message:
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptMessage(f"the message must be {self._kind}: {error}") from None


_decoder_of = functools.cache(Decoder)


def decode(data: bytes, kind: type[Message]) -> Message:
    """Reads one message; a service keeps a decoder of each kind that it reads often."""
    return cast(Message, _decoder_of(kind).decode(data))


def made_id(log: str, offset: int | str) -> str:
    """The id of an event whose publisher chose none."""
    return f"{log[:8]}-{offset}"


def made_ids(log: str, first: int, count: int) -> list[str]:
    """Those of events side by side."""
    prefix = made_id(log, "")
    return [f"{prefix}{offset}" for offset in range(first, first + count)]


def int64_bytes(values: npt.ArrayLike) -> bytes:
    return np.asarray(values, dtype="<i8").tobytes()


def view(values: npt.NDArray[Any]) -> bytes:
    """An array's bytes without a copy of them, for a message that is encoded at once."""
    if not values.size:
        return b""
    little = values.dtype.newbyteorder("<")
    # Not `bytes`, but all that the encoder asks of them.
    return cast(bytes, np.ascontiguousarray(values, dtype=little).data.cast("B"))


def int64_array(data: bytes) -> npt.NDArray[np.int64]:
    if len(data) % 8:
        raise CorruptMessage(f"a column of integers must have a multiple of 8 bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<i8")


def points_bytes(points: npt.NDArray[np.float64]) -> bytes:
    return np.ascontiguousarray(points, dtype="<f8").tobytes()


def points_array(data: bytes, width: int) -> npt.NDArray[np.float64]:
    if not width:
        return np.empty((0, 0))
    if len(data) % (8 * width):
        raise CorruptMessage(f"points must have a multiple of {8 * width} bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<f8").reshape(-1, width)
