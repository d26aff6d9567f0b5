"""The dispatcher's settings."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dispatcher.auth.quotas import TenantLimits
from edn.runtime.config import (
    URL,
    Count,
    Port,
    Positive,
    Rule,
    ServiceSettings,
    Switch,
    integer,
    items,
    number,
    one_of,
    parse_url,
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


def _parse_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError
    return text


def _parse_load_factor(text: str) -> float | None:
    factor = float(text)
    if factor != 0 and not 1 <= factor < float("inf"):
        raise ValueError
    return factor or None


class Settings(ServiceSettings):
    program: ClassVar[str] = "dispatcher"
    description: ClassVar[str] = "Accept events, log them durably and route them to servers."
    section: ClassVar[str] = "dispatcher"
    prefixes: ClassVar[tuple[str, ...]] = ("EDN_",)

    #: own URL of the dispatcher, if known
    url: str | None = Field(None, exclude=True)

    port: Port = setting(8080, "port to listen on; 0: any free port")
    open: Switch = setting(False, "require no API key; for development, on a loopback address only")
    allowed_hosts: Annotated[tuple[str, ...], items("host names", str, "NAMES")] = setting(
        (), "comma-separated host names that clients may use besides localhost, with --open"
    )
    admin_port: Annotated[
        int | None,
        Rule(expected="an integer from -1 to 65535", parse=_parse_admin_port, metavar="N", optional=True),
    ] = setting(None, "serve administrative calls on this port only; 0: any free port, -1: no separate port")
    admin_host: str = setting("127.0.0.1", "address of the administrative port")
    name: Annotated[str, Rule(expected="1 to 64 of A-Z a-z 0-9 _ . -", parse=_parse_name, metavar="NAME")] = (
        setting(
            "dispatcher",
            "name in the network's database; dispatchers with different names are active at the same time, "
            "one with the name of another waits and replaces it",
        )
    )
    advertise: Annotated[str | None, Rule(expected=URL, parse=parse_url, metavar="URL", optional=True)] = (
        setting(None, "URL that servers call, if not host and port")
    )
    allow_mail_sinks: Switch = setting(False, "allow mailto: sinks; servers need --smtp-host")
    require_consent: Switch = setting(
        False,
        "require the consent of every sink before the first delivery; refuse sinks that cannot be asked",
    )
    placement: Annotated[str, one_of(sorted(online.POLICIES))] = setting(
        "rtree", "placement policy of new subscriptions"
    )
    load_threshold: Annotated[int | None, integer(1, optional=True)] = setting(
        None, "subscriptions per server above which placement prefers other servers"
    )
    load_factor: Annotated[
        float | None,
        Rule(expected="0, or a number of 1 or more", parse=_parse_load_factor, metavar="X", optional=True),
    ] = setting(1.5, "load threshold as a multiple of the average load; 0: no limit")
    routing_rectangles: Annotated[int, integer(1)] = setting(
        64, "rectangles per server and topic that placement uses to describe subscriptions"
    )
    placement_spread: Count = setting(
        10, "subscriptions of a topic per server before placement considers their content"
    )
    placement_seed: Annotated[int | None, integer(optional=True)] = setting(
        None, "seed of random placement, for experiments"
    )
    router: Annotated[str, one_of(["bitmap", "rtree"])] = setting("bitmap", "routing index")
    cut: Annotated[str, one_of(["waste", "weighted", "level"])] = setting("waste", "method to cut summaries")
    bloom: Switch = setting(False, "add Bloom masks for equality attributes to summaries")
    summary_attributes: Count = setting(0, "route by the N most selective attributes per server; 0: all")
    tuning: Annotated[str, one_of(["fixed", "paper", "model"])] = setting(
        "model", "method to choose the precision, until an operator sets it"
    )
    tuning_seconds: Positive = setting(10.0, "seconds between tuning decisions")
    link_bytes: Annotated[float | None, number(above=True, optional=True)] = setting(
        None, "bytes per second that the dispatcher sends to all servers together"
    )
    disk_reserve: Count = setting(256 << 20, "refuse events while the log's disk has fewer free bytes")
    tenant_topics: Count = setting(_TENANT.topics, "default quota of topics per tenant")
    tenant_attributes: Count = setting(
        _TENANT.attributes, "default quota of attributes per tenant, over all topics"
    )
    tenant_members: Count = setting(
        _TENANT.members, "default quota of subtree subscription members per tenant"
    )
    retained_bytes: Count = setting(1 << 30, "bytes of retained events per tenant; 0: no limit")
    lag_limit: Annotated[int | None, integer(0, optional=True)] = setting(
        None, "delay publishers while a server lags more than N records behind; 0: no limit"
    )
    repartition_threshold: Annotated[float, number(0)] = setting(
        0.25, "propose a repartition when the hit ratio has grown by more than this share; 0: never"
    )
    repartition_seconds: Positive = setting(30.0, "seconds between checks of the hit ratio")
    repartition_command: str = setting(
        "", "command to run when a repartition is proposed, such as `edn repartition --yes`"
    )

    @field_validator("open")
    @classmethod
    def _require_loopback(cls, is_open: bool, info: ValidationInfo) -> bool:
        host = info.data.get("host", "127.0.0.1")
        if is_open and not is_loopback(host):
            raise PydanticCustomError(
                "rule",
                "requires no API key, so --host must be a loopback address, got {host}; without --open, keys "
                "are required (`edn key create --help`)",
                {"host": host},
            )
        return is_open

    @field_validator("lag_limit")
    @classmethod
    def _disable_lag_limit(cls, limit: int | None) -> int | None:
        return limit or None

    @property
    def reachable_url(self) -> str | None:
        """The URL for servers, unless it is unknown: a wildcard address is none."""
        return self.advertise or (None if self.host in ("0.0.0.0", "::") else self.url)

    @property
    def tenant_limits(self) -> TenantLimits:
        return TenantLimits(self.tenant_topics, self.tenant_attributes, self.tenant_members)
