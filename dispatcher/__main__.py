"""`python -m dispatcher`: the dispatcher as a process."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dispatcher.app import create_app
from dispatcher.quotas import TenantLimits
from dispatcher.settings import Settings
from dispatcher.store.event_log import DatabaseError
from edn import configuring, defects, storage, summary
from edn.errors import EdnError
from edn.heads import UNCOUNTED, Connections
from edn.privacy import keep_private
from edn.process import (
    CannotStart,
    bind,
    configure_logs,
    is_loopback,
    lock_folder,
    read_networks,
    read_secret,
    serve,
    url_of,
)
from edn.timekeeping import Limits
from partitioning import online


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dispatcher", description="The network's front door.")
    file = configuring.read(argv, os.environ, section="dispatcher", prefix="EDN_")
    environment = file.below(os.environ)
    env = environment.get
    configuring.add_flags(parser)
    parser.add_argument("--data", type=Path, default=env("EDN_DATA"), required="EDN_DATA" not in environment)
    parser.add_argument("--host", default=env("EDN_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=env("EDN_PORT", "8080"), help="0 takes a free one")
    parser.add_argument(
        "--secret-file",
        type=Path,
        default=env("EDN_SECRET_FILE"),
        required="EDN_SECRET_FILE" not in environment,
        help="file with the secret that the network's processes share",
    )
    parser.add_argument(
        "--open",
        action="store_true",
        default=configuring.switch("open", env("EDN_OPEN")),
        help="development only: ask nobody for a key; at a loopback address",
    )
    parser.add_argument(
        "--allowed-hosts",
        default=env("EDN_ALLOWED_HOSTS", ""),
        metavar="NAMES",
        help="with --open: names that browsers may call it by besides localhost, with commas between",
    )
    parser.add_argument(
        "--admin-port",
        type=int,
        default=env("EDN_ADMIN_PORT", "-1"),
        help="answer calls that administer at this port only; 0 takes a free one",
    )
    parser.add_argument(
        "--admin-host", default=env("EDN_ADMIN_HOST", "127.0.0.1"), help="the address of that (%(default)s)"
    )
    parser.add_argument(
        "--connections-per-address",
        type=_whole(0),
        default=env("EDN_CONNECTIONS_PER_ADDRESS") or None,
        help="open connections from one client address; 0 is no limit (1000, or a quarter of `ulimit -n`)",
    )
    parser.add_argument(
        "--uncounted-clients",
        default=env("EDN_UNCOUNTED_CLIENTS", ",".join(UNCOUNTED)),
        metavar="NETWORKS",
        help="proxies, whose connections have no such limit, with commas between (%(default)s)",
    )
    parser.add_argument(
        "--peer",
        action="append",
        metavar="URL",
        help="where another dispatcher of the network is; again for each (EDN_PEERS: with commas)",
    )
    parser.add_argument(
        "--allow-loopback-sinks",
        action="store_true",
        default=configuring.switch("allow-loopback-sinks", env("EDN_ALLOW_LOOPBACK_SINKS")),
        help="development only: notify loopback addresses, and over plain http",
    )
    parser.add_argument(
        "--allow-mail-sinks",
        action="store_true",
        default=configuring.switch("allow-mail-sinks", env("EDN_ALLOW_MAIL_SINKS")),
        help="notify mailto: addresses; the servers need --smtp-host",
    )
    parser.add_argument(
        "--require-consent",
        action="store_true",
        default=configuring.switch("require-consent", env("EDN_REQUIRE_CONSENT")),
        help="ask every sink for its consent before anything is posted; refuse what cannot be asked",
    )
    parser.add_argument("--placement", default=env("EDN_PLACEMENT", "rtree"), choices=sorted(online.POLICIES))
    parser.add_argument(
        "--load-threshold",
        type=_whole(1),
        default=env("EDN_LOAD_THRESHOLD"),
        help="subscriptions of a server beyond which others are chosen",
    )
    parser.add_argument(
        "--load-factor",
        type=_factor,
        default=env("EDN_LOAD_FACTOR", "1.5"),
        help="the same in parts of the average load, 1 or more; 0 for no such limit (%(default)s)",
    )
    parser.add_argument(
        "--routing-rectangles",
        type=_whole(1),
        default=env("EDN_ROUTING_RECTANGLES", "64"),
        help="rectangles by which placement remembers a server's subscriptions of a topic (%(default)s)",
    )
    parser.add_argument(
        "--placement-spread",
        type=_whole(0),
        default=env("EDN_PLACEMENT_SPREAD", "10"),
        help="subscriptions of a topic that a server gets before content decides (%(default)s)",
    )
    parser.add_argument(
        "--placement-seed",
        type=int,
        default=env("EDN_PLACEMENT_SEED"),
        help="makes what placement leaves to chance repeatable: for experiments",
    )
    parser.add_argument("--router", default=env("EDN_ROUTER", "bitmap"), choices=["bitmap", "rtree"])
    parser.add_argument("--cut", default=env("EDN_CUT", "waste"), choices=["waste", "weighted", "level"])
    parser.add_argument(
        "--bloom",
        action="store_true",
        default=configuring.switch("bloom", env("EDN_BLOOM")),
        help="Bloom masks for equality attributes in summaries",
    )
    parser.add_argument(
        "--summary-attributes",
        type=_whole(0),
        default=env("EDN_SUMMARY_ATTRIBUTES", "0"),
        metavar="N",
        help="route by the N attributes of a server's subscriptions that rule out most events; 0 is all",
    )
    parser.add_argument("--tuning", default=env("EDN_TUNING", "model"), choices=["fixed", "paper", "model"])
    parser.add_argument("--tuning-seconds", type=_above_0, default=env("EDN_TUNING_SECONDS", "10"))
    parser.add_argument(
        "--link-bytes",
        type=_above_0,
        default=env("EDN_LINK_BYTES") or None,
        help="bytes a second that may leave for the servers",
    )
    parser.add_argument(
        "--disk-reserve",
        type=_whole(0),
        default=env("EDN_DISK_RESERVE", str(256 << 20)),
        metavar="BYTES",
        help="accept no events while the log's disk has less room than this (%(default)s)",
    )
    limits = TenantLimits()
    for name, default, what in (
        ("topics", limits.topics, "topics"),
        ("attributes", limits.attributes, "attributes of topics, all together"),
        ("members", limits.members, "topics that subscriptions to subtrees reach, all together"),
    ):
        parser.add_argument(
            f"--tenant-{name}",
            type=_whole(0),
            default=env(f"EDN_TENANT_{name.upper()}", str(default)),
            metavar="COUNT",
            help=f"{what}, that a tenant may have whose keys do not say (%(default)s)",
        )
    parser.add_argument(
        "--retained-bytes",
        type=_whole(0),
        default=env("EDN_RETAINED_BYTES", str(1 << 30)),
        metavar="BYTES",
        help="bytes of a tenant's events that stay available to later subscribers; 0 is any (%(default)s)",
    )
    parser.add_argument(
        "--lag-limit",
        type=_whole(0),
        default=env("EDN_LAG_LIMIT", "0"),
        help="hold publishers while a server is so many records behind",
    )
    parser.add_argument(
        "--clock-jump-seconds",
        type=_above_0,
        default=env("EDN_CLOCK_JUMP_SECONDS", "300"),
        help="a wall clock that departs from the elapsed time by more is suspect (%(default)s)",
    )
    parser.add_argument(
        "--clock-trust-seconds",
        type=_above_0,
        default=env("EDN_CLOCK_TRUST_SECONDS", "300"),
        help="seconds that a suspect wall clock must agree with the elapsed time (%(default)s)",
    )
    parser.add_argument(
        "--repartition-threshold",
        type=_share,
        default=env("EDN_REPARTITION_THRESHOLD", "0.25"),
        help="propose a repartition when the hit ratio has grown by more than this part; 0 is never",
    )
    parser.add_argument(
        "--repartition-seconds",
        type=_above_0,
        default=env("EDN_REPARTITION_SECONDS", "30"),
        help="interval between two looks at it (%(default)s)",
    )
    parser.add_argument(
        "--repartition-command",
        default=env("EDN_REPARTITION_COMMAND", ""),
        metavar="COMMAND",
        help="start this when a repartition is proposed, such as `edn repartition --yes`",
    )
    arguments = configuring.parse(parser, file, argv)
    arguments.peer = _peers(arguments.peer or env("EDN_PEERS", "").split(","))
    configuring.tell(parser, arguments, file, argv, os.environ)
    return arguments


def _peers(given: list[str]) -> list[str]:
    urls = list(dict.fromkeys(url.strip().rstrip("/") for url in given if url.strip()))
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise CannotStart(f'--peer "{url}": an address such as http://10.0.0.2:8080 is right')
    return urls


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'"{text}": a whole number of {least} or more is right')
        return int(text)

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # which is within no bounds


def _above_0(text: str) -> float:
    if not 0 < _number(text) < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}": a number above 0 is right')
    return _number(text)


def _share(text: str) -> float:
    if not 0 <= _number(text) < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}": a number of 0 or more is right')
    return _number(text)


def _factor(text: str) -> float:
    if _number(text) != 0 and not 1 <= _number(text) < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}": 0, or a number of 1 or more is right')
    return _number(text)


def main(argv: list[str] | None = None) -> int:
    try:
        arguments = _arguments(sys.argv[1:] if argv is None else argv)
    except CannotStart as error:
        print(f"dispatcher: {error.detail}", file=sys.stderr)  # noqa: T201  it never started
        return 1
    keep_private()
    configure_logs()
    defects.announce()
    try:
        lock = storage.open_with_room(arguments.data, lambda: lock_folder(arguments.data))
        settings = Settings(
            data=arguments.data,
            secret=read_secret(arguments.secret_file),
            host=arguments.host,
            port=arguments.port,
            open=arguments.open,
            allowed_hosts=tuple(name.strip() for name in arguments.allowed_hosts.split(",") if name.strip()),
            connections_per_address=arguments.connections_per_address,
            uncounted_clients=read_networks("--uncounted-clients", arguments.uncounted_clients),
            tenant_limits=TenantLimits(
                arguments.tenant_topics, arguments.tenant_attributes, arguments.tenant_members
            ),
            allow_loopback_sinks=arguments.allow_loopback_sinks,
            allow_mail_sinks=arguments.allow_mail_sinks,
            require_consent=arguments.require_consent,
            placement=arguments.placement,
            load_threshold=arguments.load_threshold,
            load_factor=arguments.load_factor or None,
            routing_rectangles=arguments.routing_rectangles,
            placement_spread=arguments.placement_spread,
            placement_seed=arguments.placement_seed,
            router=arguments.router,
            cut=arguments.cut,
            bloom=arguments.bloom,
            summary_attributes=arguments.summary_attributes,
            tuning=arguments.tuning,
            tuning_seconds=arguments.tuning_seconds,
            link_bytes=arguments.link_bytes,
            disk_reserve=arguments.disk_reserve,
            retained_bytes=arguments.retained_bytes,
            lag_limit=arguments.lag_limit or None,
            clock=Limits(jump=arguments.clock_jump_seconds, trust=arguments.clock_trust_seconds),
            repartition_threshold=arguments.repartition_threshold,
            repartition_seconds=arguments.repartition_seconds,
            repartition_command=arguments.repartition_command,
            peers=tuple(arguments.peer),
        )
        if settings.open and not is_loopback(settings.host):
            raise CannotStart(
                f"--open asks nobody for a key, and {settings.host} is no loopback address: without it, keys "
                "are wanted (`edn key create --help`)"
            )
        listeners = [bind(settings.host, settings.port)]
        settings = replace(settings, url=url_of(listeners[0]))
        ready = {"role": "dispatcher", "url": settings.url}
        if arguments.admin_port >= 0:
            listeners.append(bind(arguments.admin_host, arguments.admin_port))
            settings = replace(settings, admin_port=listeners[1].getsockname()[1])
            ready["admin"] = url_of(listeners[1])
        app = storage.open_with_room(settings.data, lambda: create_app(settings))
    except EdnError as error:
        print(f"dispatcher: {error.detail}", file=sys.stderr)  # noqa: T201  it never started
        return 1
    except DatabaseError as error:  # a full disk, say
        reason = f"the log in {arguments.data} cannot be opened: {error}"
        print(f"dispatcher: {reason}", file=sys.stderr)  # noqa: T201  it never started
        return 1
    # The first event shall not wait for a compiler.
    summary.compile_kernels()
    online.warm()
    connections = Connections(settings.connections_per_address, settings.uncounted_clients)
    serve(app, listeners, {**ready, "log": app.state.door.network.log.id}, connections)
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
