"""Declares the dispatcher's settings."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dispatcher.auth.quotas import TenantLimits
from edn.runtime.config import (
    Count,
    Port,
    Positive,
    Repeatable,
    Rule,
    ServiceSettings,
    Switch,
    Urls,
    integer,
    items,
    number,
    one_of,
    setting,
)
from edn.runtime.process import is_loopback
from partitioning import online

_TENANT = TenantLimits()


def _parse_admin_port(text: str) -> int | None:
    port = int(text)
    if not -1 <= port <= 65535:
        raise ValueError
    return None if port < 0 else port


def _parse_load_factor(text: str) -> float | None:
    factor = float(text)
    if factor != 0 and not 1 <= factor < float("inf"):
        raise ValueError
    return factor or None


class Settings(ServiceSettings):
    program: ClassVar[str] = "dispatcher"
    description: ClassVar[str] = "The network's front door."
    section: ClassVar[str] = "dispatcher"
    prefixes: ClassVar[tuple[str, ...]] = ("EDN_",)

    #: where this dispatcher is reached, as far as it knows
    url: str | None = Field(None, exclude=True)

    port: Port = setting(8080, "port to listen at; 0 takes a free one")
    open: Switch = setting(False, "development only, on a loopback address: ask nobody for a key")
    allowed_hosts: Annotated[tuple[str, ...], items("host names", str, "NAMES")] = setting(
        (), "with --open: names that browsers may use besides localhost, separated by commas"
    )
    admin_port: Annotated[
        int | None,
        Rule(expected="an integer from -1 to 65535", parse=_parse_admin_port, metavar="N", optional=True),
    ] = setting(None, "answer administrative calls on this port only; 0 takes a free one, -1 is none")
    admin_host: str = setting("127.0.0.1", "address of the administrative port")
    peers: Annotated[Urls, Repeatable("peer")] = setting(
        (),
        "address of another dispatcher of the network; repeat it for each (EDN_PEERS: separated by commas)",
    )
    allow_mail_sinks: Switch = setting(False, "notify mailto: addresses; the servers need --smtp-host")
    require_consent: Switch = setting(
        False, "ask every sink for its consent before the first delivery; refuse sinks that cannot be asked"
    )
    placement: Annotated[str, one_of(sorted(online.POLICIES))] = setting(
        "rtree", "policy that selects the server of a new subscription"
    )
    load_threshold: Annotated[int | None, integer(1, optional=True)] = setting(
        None, "subscriptions of a server beyond which other servers are selected"
    )
    load_factor: Annotated[
        float | None,
        Rule(expected="0, or a number of 1 or more", parse=_parse_load_factor, metavar="X", optional=True),
    ] = setting(1.5, "the same as a multiple of the average load; 0 is no limit")
    routing_rectangles: Annotated[int, integer(1)] = setting(
        64, "rectangles by which placement remembers a server's subscriptions of a topic"
    )
    placement_spread: Count = setting(
        10, "subscriptions of a topic that a server gets before content decides"
    )
    placement_seed: Annotated[int | None, integer(optional=True)] = setting(
        None, "seed that makes random placement repeatable: for experiments"
    )
    router: Annotated[str, one_of(["bitmap", "rtree"])] = setting("bitmap", "routing index")
    cut: Annotated[str, one_of(["waste", "weighted", "level"])] = setting(
        "waste", "method that cuts summaries to their precision"
    )
    bloom: Switch = setting(False, "add Bloom masks for equality attributes to summaries")
    summary_attributes: Count = setting(
        0, "route by the N attributes of a server's subscriptions that exclude most events; 0: all"
    )
    tuning: Annotated[str, one_of(["fixed", "paper", "model"])] = setting(
        "model", "method that chooses the precision until somebody sets it"
    )
    tuning_seconds: Positive = setting(10.0, "seconds between two tuning decisions")
    link_bytes: Annotated[float | None, number(above=True, optional=True)] = setting(
        None, "bytes per second that may leave for all servers together"
    )
    disk_reserve: Count = setting(256 << 20, "accept no events while the log's disk has fewer free bytes")
    tenant_topics: Count = setting(_TENANT.topics, "topics of a tenant whose keys set no limit")
    tenant_attributes: Count = setting(_TENANT.attributes, "attributes of all topics of such a tenant")
    tenant_members: Count = setting(
        _TENANT.members, "topics that all subtree subscriptions of such a tenant reach"
    )
    retained_bytes: Count = setting(
        1 << 30, "bytes of a tenant's events that stay available to later subscribers; 0 is no limit"
    )
    lag_limit: Annotated[int | None, integer(0, optional=True)] = setting(
        None, "delay publishers while a server is so many records behind; 0 is no limit"
    )
    repartition_threshold: Annotated[float, number(0)] = setting(
        0.25, "propose a repartition when the hit ratio has grown by more than this share; 0 is never"
    )
    repartition_seconds: Positive = setting(30.0, "seconds between two checks of the hit ratio")
    repartition_command: str = setting("", "command that a proposal starts, such as `edn repartition --yes`")

    @field_validator("open")
    @classmethod
    def _require_loopback(cls, is_open: bool, info: ValidationInfo) -> bool:
        host = info.data.get("host", "127.0.0.1")
        if is_open and not is_loopback(host):
            raise PydanticCustomError(
                "rule",
                "asks nobody for a key, so --host must be a loopback address, got {host}; without it, keys "
                "are required (`edn key create --help`)",
                {"host": host},
            )
        return is_open

    @field_validator("lag_limit")
    @classmethod
    def _disable_lag_limit(cls, limit: int | None) -> int | None:
        return limit or None

    @property
    def tenant_limits(self) -> TenantLimits:
        return TenantLimits(self.tenant_topics, self.tenant_attributes, self.tenant_members)
