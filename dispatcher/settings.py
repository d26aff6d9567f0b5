"""What an operator can set, from flags, then environment, then a file, then defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.quotas import TenantLimits
from edn.heads import UNCOUNTED
from edn.timekeeping import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    #: folder of the log and the directory; made when missing
    data: Path
    #: shared by the network's processes; every internal call carries it
    secret: str
    host: str = "127.0.0.1"
    port: int = 8080
    #: no keys are asked for: for development only
    open: bool = False
    #: names, besides those of loopback, that it may be called by then
    allowed_hosts: tuple[str, ...] = ()
    #: calls that administer are answered at this port only; None: at the same as all others
    admin_port: int | None = None
    #: open connections from one client address; 0 is no limit, None the default of `edn.heads`
    connections_per_address: int | None = None
    #: networks whose clients are not counted: proxies
    uncounted_clients: tuple[str, ...] = UNCOUNTED
    #: sinks on loopback and over plain http are for development only
    allow_loopback_sinks: bool = False
    #: whether mailto: addresses are taken; the servers need a relay for them
    allow_mail_sinks: bool = False
    #: every sink is asked for its consent, or refused, not only where the subscriber wants it
    require_consent: bool = False
    #: of a tenant whose keys name none: topics, their attributes, and topics that its subtrees reach
    tenant_limits: TenantLimits = field(default_factory=TenantLimits)
    #: bytes of one request's body
    body_limit: int = 1 << 20
    #: subscriptions in one array
    subscriptions_per_request: int = 1000
    #: events in one array
    events_per_request: int = 10_000
    #: how often a server says that it lives
    heartbeat_seconds: float = 1.0
    #: a server that was silent for so many of those is away
    missed_heartbeats: int = 5
    #: events in one frame to a server
    frame_events: int = 2000
    #: bytes of event bodies in one frame
    frame_bytes: int = 4 << 20
    #: a server that needs nothing still learns how far the log is, this often
    idle_frame_seconds: float = 1.0
    #: bytes of committed events kept in memory for the forwarders; older ones are read from disk
    tail_bytes: int = 64 << 20
    #: bytes waiting for their commit beyond which publishers are told to wait
    pending_bytes: int = 64 << 20
    #: bytes that must stay free for the log: on its disk, or as free pages in its file; below that no events
    #: are accepted
    disk_reserve: int = 256 << 20
    #: bytes of events that stay available to later subscribers, per tenant; 0 is any number
    retained_bytes: int = 1 << 30
    #: a server that gets no new subscriptions for so long is asked for a summary of those it got
    settle_seconds: float = 2.0
    #: how often what every server has is taken off the log
    truncate_seconds: float = 5.0
    #: when a wall clock is suspect, and how long it must agree with the elapsed time to be trusted again
    clock: Limits = field(default_factory=Limits)
    #: how long an event id that a publisher chose is known
    idempotence_seconds: float = 86_400.0
    #: seconds a server may take to store a subscription
    store_timeout: float = 15.0
    #: name of the online placement policy
    placement: str = "rtree"
    #: subscriptions that a server may have before others are chosen
    load_threshold: int | None = None
    #: the same, in parts of the average
    load_factor: float | None = 1.5
    #: rectangles by which placement remembers a server's subscriptions of a topic (N_b)
    routing_rectangles: int = 64
    #: subscriptions of a topic that a server gets before content decides
    placement_spread: int = 10
    #: makes what placement leaves to chance repeatable
    placement_seed: int | None = None
    #: name of the router
    router: str = "bitmap"
    #: how summaries are cut to their precision
    cut: str = "waste"
    #: whether cut rectangles carry Bloom masks of their equality attributes
    bloom: bool = False
    #: routing asks about so many attributes of a topic, those that rule out most; 0 is all
    summary_attributes: int = 0
    #: how the precision is chosen as long as nobody has set it: `fixed`, `paper` or `model`
    tuning: str = "model"
    #: seconds between two looks at whether another precision would be better
    tuning_seconds: float = 10.0
    #: bytes a second that may leave for all servers together; None for as many as the system sends
    link_bytes: float | None = None
    #: where this dispatcher is reached, as far as it knows
    url: str | None = None
    #: where the other dispatchers are; each of them has a log of its own
    peers: tuple[str, ...] = ()
    #: seconds after which one that is silent is left out; it takes nothing any more a little earlier
    lease_seconds: float = 6.0
    #: a repartition is proposed when the hit ratio has grown by more than this part of it; 0 is never
    repartition_threshold: float = 0.25
    #: seconds between two looks at it
    repartition_seconds: float = 30.0
    #: what is started when one is proposed; empty is nothing
    repartition_command: str = ""
    #: records that a server may be behind before publishers are held; None: the log grows instead
    lag_limit: int | None = None
