"""Declares the dispatcher's settings."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dispatcher.quotas import TenantLimits
from edn.process import is_loopback
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
)
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

    port: Port = Field(8080, description="port to listen at; 0 takes a free one")
    open: Switch = Field(False, description="development only, on a loopback address: ask nobody for a key")
    allowed_hosts: Annotated[tuple[str, ...], items("host names", str, "NAMES")] = Field(
        (), description="with --open: names that browsers may use besides localhost, separated by commas"
    )
    admin_port: Annotated[
        int | None,
        Rule(expected="an integer from -1 to 65535", parse=_parse_admin_port, metavar="N", optional=True),
    ] = Field(
        None,
        description="answer administrative calls on this port only; 0 takes a free one, -1 is none",
    )
    admin_host: str = Field("127.0.0.1", description="address of the administrative port")
    peers: Annotated[Urls, Repeatable("peer")] = Field(
        (),
        description="address of another dispatcher of the network; repeat it for each (EDN_PEERS: separated "
        "by commas)",
    )
    allow_mail_sinks: Switch = Field(
        False, description="notify mailto: addresses; the servers need --smtp-host"
    )
    require_consent: Switch = Field(
        False,
        description="ask every sink for its consent before the first delivery; refuse sinks that cannot be "
        "asked",
    )
    placement: Annotated[str, one_of(sorted(online.POLICIES))] = Field(
        "rtree", description="policy that selects the server of a new subscription"
    )
    load_threshold: Annotated[int | None, integer(1, optional=True)] = Field(
        None, description="subscriptions of a server beyond which other servers are selected"
    )
    load_factor: Annotated[
        float | None,
        Rule(expected="0, or a number of 1 or more", parse=_parse_load_factor, metavar="X", optional=True),
    ] = Field(1.5, description="the same as a multiple of the average load; 0 is no limit")
    routing_rectangles: Annotated[int, integer(1)] = Field(
        64, description="rectangles by which placement remembers a server's subscriptions of a topic"
    )
    placement_spread: Count = Field(
        10, description="subscriptions of a topic that a server gets before content decides"
    )
    placement_seed: Annotated[int | None, integer(optional=True)] = Field(
        None, description="seed that makes random placement repeatable: for experiments"
    )
    router: Annotated[str, one_of(["bitmap", "rtree"])] = Field("bitmap", description="routing index")
    cut: Annotated[str, one_of(["waste", "weighted", "level"])] = Field(
        "waste", description="method that cuts summaries to their precision"
    )
    bloom: Switch = Field(False, description="add Bloom masks for equality attributes to summaries")
    summary_attributes: Count = Field(
        0,
        description="route by the N attributes of a server's subscriptions that exclude most events; 0: all",
    )
    tuning: Annotated[str, one_of(["fixed", "paper", "model"])] = Field(
        "model", description="method that chooses the precision until somebody sets it"
    )
    tuning_seconds: Positive = Field(10.0, description="seconds between two tuning decisions")
    link_bytes: Annotated[float | None, number(above=True, optional=True)] = Field(
        None, description="bytes per second that may leave for all servers together"
    )
    disk_reserve: Count = Field(
        256 << 20, description="accept no events while the log's disk has fewer free bytes"
    )
    tenant_topics: Count = Field(_TENANT.topics, description="topics of a tenant whose keys set no limit")
    tenant_attributes: Count = Field(
        _TENANT.attributes, description="attributes of all topics of such a tenant"
    )
    tenant_members: Count = Field(
        _TENANT.members, description="topics that all subtree subscriptions of such a tenant reach"
    )
    retained_bytes: Count = Field(
        1 << 30,
        description="bytes of a tenant's events that stay available to later subscribers; 0 is no limit",
    )
    lag_limit: Annotated[int | None, integer(0, optional=True)] = Field(
        None, description="delay publishers while a server is so many records behind; 0 is no limit"
    )
    repartition_threshold: Annotated[float, number(0)] = Field(
        0.25,
        description="propose a repartition when the hit ratio has grown by more than this share; 0 is never",
    )
    repartition_seconds: Positive = Field(30.0, description="seconds between two checks of the hit ratio")
    repartition_command: str = Field(
        "", description="command that a proposal starts, such as `edn repartition --yes`"
    )

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
