"""Settings from a file, with one precedence for all services: a flag, then the environment, then the file.

The file is TOML. `[network]` holds what all processes share, `[dispatcher]` and `[server]` what each is
given; a key is a flag's name without its dashes:

    [network]
    secret-file = "/etc/edn/secret"

    [dispatcher]
    data = "/var/lib/edn/dispatcher"
    peers = ["http://10.0.0.2:8080"]

    [server]
    dispatcher = ["http://10.0.0.1:8080", "http://10.0.0.2:8080"]

What a service reads of it becomes variables of its environment, where there are none of that name: so a
setting means the same wherever it stands. A key that no flag has is refused.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edn.process import CannotStart

#: sections that a file may have
SECTIONS = ("network", "dispatcher", "server")
#: keys that are spelt otherwise than their flag, because a file has them once
_PLURAL = {"peers": "peer"}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class File:
    """What a file says to one service; empty where there is none."""

    path: Path | None
    #: how its variables begin
    prefix: str
    #: key → value as text
    values: dict[str, str] = field(default_factory=dict)

    def variable(self, key: str) -> str:
        return self.prefix + key.upper().replace("-", "_")

    def below(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment, completed by the file where it says nothing."""
        general = {key: "EDN_" + key.upper().replace("-", "_") for key in self.values}
        missing = {
            self.variable(key): value
            for key, value in self.values.items()
            if self.variable(key) not in environment and general[key] not in environment
        }
        return {**environment, **missing}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-file", metavar="FILE", help="settings in TOML; environment and flags go before it"
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="say what each setting would be and where it comes from, and start nothing",
    )


def read(arguments: Sequence[str], environment: Mapping[str, str], *, section: str, prefix: str) -> File:
    """The file that flags or environment name, as far as it concerns a service; raises `CannotStart`."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config-file")
    named = first.parse_known_args(list(arguments))[0].config_file
    named = named or environment.get(f"{prefix}CONFIG_FILE", environment.get("EDN_CONFIG_FILE"))
    if not named:
        return File(None, prefix)
    path = Path(named)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotStart(f"the settings in {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CannotStart(f"{path} is no TOML: {error}") from None
    unknown = document.keys() - set(SECTIONS)
    if unknown:
        raise CannotStart(f"{path}: no section is called {min(unknown)}; there are {', '.join(SECTIONS)}")
    for name in SECTIONS:
        if not isinstance(document.get(name, {}), dict):
            raise CannotStart(f"{path}: {name} is a section; [{name}] above its settings is right")
    values = {
        key: _text(path, name, key, value)
        for name in ("network", section)
        for key, value in document.get(name, {}).items()
    }
    return File(path, prefix, values)


def _text(path: Path, section: str, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    raise CannotStart(
        f"{path}, [{section}] {key}: a string, a number, true or false, or a list of strings is right"
    )


def switch(name: str, text: str | None) -> bool:
    """What the environment or a file says of a flag without a value."""
    if text is None or text.lower() in _FALSE:
        return False
    if text.lower() in _TRUE:
        return True
    raise CannotStart(f'{name} is "{text}"; true or false is right')


def parse(parser: argparse.ArgumentParser, file: File, arguments: Sequence[str]) -> argparse.Namespace:
    """What flags and their defaults say; raises `CannotStart` for what the file or a default has wrong."""
    flags = _flags(parser)
    plural = {flag: key for key, flag in _PLURAL.items()}
    for key in file.values:
        if key in plural:
            raise CannotStart(f'{file.path}: no setting is called {key}; {plural[key]} = ["…"] is right')
        if _PLURAL.get(key, key) not in flags:
            raise CannotStart(f"{file.path}: no setting is called {key}; `--help` lists the flags")
    values = parser.parse_args(list(arguments))
    for flag, action in flags.items():
        # argparse looks at the choices of what it is given only, not at those of defaults.
        value = getattr(values, action.dest)
        if action.choices is not None and value not in action.choices:
            raise CannotStart(f'--{flag} "{value}": one of {", ".join(action.choices)} is right')
    return values


def tell(
    parser: argparse.ArgumentParser,
    values: argparse.Namespace,
    file: File,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Where that is all that is asked for: say what counts and where it comes from, and exit."""
    if not values.check_config:
        return
    plural = {flag: key for key, flag in _PLURAL.items()}
    for flag, action in _flags(parser).items():
        key = plural.get(flag, flag)
        value, origin = getattr(values, action.dest), _origin(flag, key, file, arguments, environment)
        sys.stdout.write(f"{flag:<24} {_shown(value):<40} {origin}\n")
    raise SystemExit(0)


def _flags(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Those that set something, by their names without dashes."""
    return {
        option.removeprefix("--"): action
        for action in parser._actions  # argparse has no other way to ask
        for option in action.option_strings
        if option.startswith("--") and option not in ("--help", "--config-file", "--check-config")
    }


def _origin(flag: str, key: str, file: File, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    if any(one == f"--{flag}" or one.startswith(f"--{flag}=") for one in arguments):
        return "flag"
    if file.variable(key) in environment or "EDN_" + key.upper().replace("-", "_") in environment:
        return "environment"
    return "file" if key in file.values else "default"


def _shown(value: Any) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
