"""Reads a service's settings from flags, then the environment, then a TOML file, then defaults.

A service declares each setting once, as a field of its `ServiceSettings` class: name, rule, default and help.
Flags, variables, file keys, `--help`, `--check-config` and errors are derived from the field. All sources are
text that the field's `Rule` parses, so a setting means the same in each of them.

The file has the sections `[network]`, for all processes, `[dispatcher]` and `[server]`. Keys are flags
without their dashes:

    [network]
    secret-file = "/etc/edn/secret"

    [dispatcher]
    data = "/var/lib/edn/dispatcher"

    [server]
    dispatcher = ["http://10.0.0.2:8080"]
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, GetCoreSchemaHandler, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from edn.http.request_limits import UNCOUNTED
from edn.http.sink_policy import Network, parse_network
from edn.http.tls import Tls, TlsFiles
from edn.runtime.process import CannotStart, read_secret
from edn.runtime.secret_box import SecretBox, open_box
from edn.runtime.timekeeper import Limits

#: sections that a file may have
SECTIONS = ("network", "dispatcher", "server")
_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}


class InvalidSettings(CannotStart):
    """Invalid settings; `errors` has one sentence per setting."""

    exit_code = 2

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


# -- rules ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Parses the text of a setting."""

    #: completes "--flag must be"
    expected: str
    #: raises `ValueError` for text that breaks the rule
    parse: Callable[[str], Any]
    metavar: str | None = None
    #: whether None or an empty text disables the setting
    optional: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def check(self, value: Any) -> Any:
        if self.optional and value in (None, ""):
            return None
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        try:
            return self.parse(text)
        except _WrongItem as error:
            text = str(error)
        except ValueError:
            pass
        got = json.dumps(text, ensure_ascii=False)
        raise PydanticCustomError(
            "rule", "must be {expected}, got {got}", {"expected": self.expected, "got": got}
        )


class _WrongItem(ValueError):
    """One item of a list breaks the rule."""


def integer(least: int | None = None, most: int | None = None, *, optional: bool = False) -> Rule:
    """Requires an integer within bounds; 1e6 is one."""
    bounds = f" from {least} to {most}" if most is not None else f" of {least} or more"

    def parse(text: str) -> int:
        plain = text.strip().removeprefix("-")
        value = int(text) if plain.isascii() and plain.isdecimal() else _integral(float(text))
        if (least is not None and value < least) or (most is not None and value > most):
            raise ValueError
        return value

    expected = "an integer" + (bounds if least is not None else "")
    return Rule(expected=expected, parse=parse, metavar="N", optional=optional)


def _integral(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def number(least: float = 0.0, *, above: bool = False, optional: bool = False) -> Rule:
    """Requires a finite number of at least `least`, or above it."""

    def parse(text: str) -> float:
        value = float(text)
        if not least <= value < math.inf or (above and value == least):
            raise ValueError
        return value

    expected = f"a number above {least:g}" if above else f"a number of {least:g} or more"
    return Rule(expected=expected, parse=parse, metavar="X", optional=optional)


def one_of(choices: Sequence[str]) -> Rule:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return Rule(expected=f"one of {', '.join(choices)}", parse=parse, metavar=f"{{{','.join(choices)}}}")


def items(
    expected: str, parse: Callable[[str], Any], metavar: str | None = None, *, unique: bool = False
) -> Rule:
    """Requires items separated by commas; `unique` drops repeated ones."""

    def parse_item(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise _WrongItem(text) from None

    def parse_all(text: str) -> tuple[Any, ...]:
        found = [parse_item(item.strip()) for item in text.split(",") if item.strip()]
        return tuple(dict.fromkeys(found) if unique else found)

    return Rule(expected=expected, parse=parse_all, metavar=metavar)


def parse_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError
    if parts.query or parts.fragment:
        raise ValueError
    return text.rstrip("/")


def _parse_network(text: str) -> str:
    ipaddress.ip_network(text)
    return text


def parse_sink_network(text: str) -> str:
    return str(parse_network(text))


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise ValueError
    return _SWITCHES[text.lower()]


URL = "an address such as http://10.0.0.2:8080"

Switch = Annotated[bool, Rule(expected="true or false", parse=_parse_switch)]
Port = Annotated[int, integer(0, 65535)]
Count = Annotated[int, integer(0)]
Positive = Annotated[float, number(above=True)]
Folder = Annotated[Path, Rule(expected="a path", parse=Path, metavar="DIR")]
File = Annotated[Path | None, Rule(expected="a path", parse=Path, metavar="FILE", optional=True)]
Urls = Annotated[tuple[str, ...], items(URL, parse_url, "URL", unique=True)]
Networks = Annotated[tuple[str, ...], items("networks such as 10.0.0.0/8", _parse_network, "NETWORKS")]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Marks a setting whose flag is repeated per value, and names the flag."""

    flag: str


def setting(default: Any, help: str) -> Any:
    """Declares a field's default (`...` if it is required) and its help."""
    return Field(default, description=help)


def _database_rule() -> Rule:
    def parse(text: str) -> str:
        if not text.startswith(("postgresql://", "postgres://")) or len(text) > 4096:
            raise ValueError
        return text

    return Rule(expected="a URL postgresql://host,host/name", parse=parse, metavar="URL", optional=True)


# -- the settings of a service --------------------------------------------------------------------------


class ServiceSettings(BaseSettings):
    """The settings of both services.

    A field with `exclude` is not a setting: it is set when the process starts. The constructor reads only its
    arguments; `load` reads flags, environment and file.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", enable_decoding=False)

    #: module for `python -m`
    program: ClassVar[str]
    description: ClassVar[str]
    section: ClassVar[str]
    #: prefixes of variables, in order of precedence
    prefixes: ClassVar[tuple[str, ...]]

    database: Annotated[str | None, _database_rule()] = setting(
        None, "PostgreSQL database of the network, postgresql://host,host/name, in place of a data folder"
    )
    database_schema: str = setting("edn", "PostgreSQL schema with the tables of this network")
    allow_single_database: Switch = setting(
        False, "accept a database without a synchronous replica: its machine may lose acknowledged events"
    )
    data: Annotated[Path | None, Rule(expected="a path", parse=Path, metavar="DIR", optional=True)] = Field(
        None, validate_default=True, description="data folder; created if missing"
    )
    #: secret of the network; every internal request carries it
    secret: str = Field("", exclude=True, repr=False)
    secret_file: File = Field(
        None, validate_default=True, description="file with the secret shared by all processes of the network"
    )
    #: keys of stored secrets from the environment; a flag would show them to other users
    secret_keys: str = Field("", exclude=True, repr=False)
    secret_key_file: File = setting(
        None,
        "file with the keys of stored secrets; default: EDN_SECRET_KEYS, else a key file in the data folder",
    )
    tls_cert: File = setting(None, "certificate in PEM; with it the process serves https")
    tls_key: File = Field(None, validate_default=True, description="private key of --tls-cert, in PEM")
    tls_ca: File = setting(
        None, "certificate authority of the network, in PEM: other processes must have a certificate of it"
    )
    tls_clients: Annotated[Any, one_of(("required", "internal"))] = setting(
        "required",
        "with --tls-ca: whether all callers need a certificate, or only those of /internal/ (the processes)",
    )
    host: str = setting("127.0.0.1", "address to listen on")
    connections_per_address: Annotated[int | None, integer(0, optional=True)] = setting(
        None,
        "maximal connections per client address; 0 is unlimited (default 1000, or a quarter of `ulimit -n`)",
    )
    uncounted_clients: Networks = setting(
        UNCOUNTED, "networks of proxies without a limit of connections, separated by commas"
    )
    allow_loopback_sinks: Switch = setting(
        False, "development only: allow sinks on loopback addresses, over plain http"
    )
    broker_ca_file: File = setting(
        None, "file with further certificates of authorities that message brokers may use"
    )
    allow_sink_networks: Annotated[
        tuple[str, ...],
        items("networks such as 10.0.0.0/8, not all addresses", parse_sink_network, "CIDR", unique=True),
        Repeatable("allow-sink-network"),
    ] = setting(
        (),
        "private network whose addresses may be sinks, also over plain http; repeatable "
        "(in the environment: separated by commas)",
    )
    clock_jump_seconds: Positive = setting(
        Limits().jump, "seconds by which the wall clock may depart from the elapsed time before it is suspect"
    )
    clock_trust_seconds: Positive = setting(
        Limits().trust,
        "seconds that a suspect wall clock must agree with the elapsed time before it is trusted",
    )

    @field_validator("data")
    @classmethod
    def _require_one_store(cls, data: Path | None, info: ValidationInfo) -> Path | None:
        has_database = info.data.get("database") is not None
        if data is None and not has_database and "database" in info.data:
            raise PydanticCustomError("missing", "is required")
        if data is not None and has_database:
            raise PydanticCustomError("rule", "must not be given together with --database")
        return data

    @field_validator("database_schema")
    @classmethod
    def _check_schema(cls, schema: str) -> str:
        if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,40}", schema):
            raise PydanticCustomError(
                "rule",
                "must be up to 41 of a-z, 0-9 and _, not beginning with a digit or pg_, got {got}",
                {"got": repr(schema[:80])},
            )
        return schema

    @cached_property
    def sink_networks(self) -> tuple[Network, ...]:
        """The networks of --allow-sink-network."""
        return tuple(parse_network(text) for text in self.allow_sink_networks)

    @property
    def folder(self) -> Path:
        """The data folder of a process without a database."""
        assert self.data is not None
        return self.data

    @field_validator("secret_file")
    @classmethod
    def _require_secret(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if file is None and not info.data.get("secret"):
            raise PydanticCustomError("missing", "is required")
        return file

    @field_validator("tls_key")
    @classmethod
    def _require_pair(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        cert = info.data.get("tls_cert")
        if (key is None) != (cert is None):
            rule = "is required with --tls-cert" if key is None else "must be given together with --tls-cert"
            raise PydanticCustomError("rule", "{rule}", {"rule": rule})
        return key

    @property
    def scheme(self) -> str:
        return "http" if self.tls_cert is None else "https"

    def open_tls(self) -> Tls:
        """Loads certificates and keys; raises `CannotStart`."""
        return Tls(TlsFiles(self.tls_cert, self.tls_key, self.tls_ca), self.tls_clients)

    @property
    def clock(self) -> Limits:
        return Limits(jump=self.clock_jump_seconds, trust=self.clock_trust_seconds)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @classmethod
    def load(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Loads the settings and the secret files; raises `CannotStart`.

        Exits for `--help`, an unknown flag and `--check-config`.
        """
        flags = vars(_parser(cls).parse_args(list(arguments)))
        check, as_json, file = (flags.pop(name) for name in ("check_config", "json", "config_file"))
        try:
            settings, origins = _load(cls, flags, environment, file)
        except InvalidSettings as error:
            if check and as_json:
                sys.stdout.write(json.dumps({"settings": {}, "errors": error.errors}) + "\n")
                raise SystemExit(2) from None
            raise
        if check:  # the secret files may not exist here
            sys.stdout.writelines(_report(settings, origins, as_json=as_json))
            raise SystemExit(0)
        variables = (environment.get(f"{prefix}SECRET_KEYS") for prefix in cls.prefixes)
        keys = next(filter(None, variables), "")
        return settings.read_secrets().model_copy(update={"secret_keys": keys})

    def open_box(self) -> SecretBox:
        """Opens the box of stored secrets, once the data folder is locked; raises `CannotStart`."""
        return open_box(self.secret_key_file, self.secret_keys, self.data)

    def read_secrets(self) -> Self:
        assert self.secret_file is not None  # unless it was constructed with a secret
        return self.model_copy(update={"secret": read_secret(self.secret_file)})


def _settings(cls: type[ServiceSettings]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yields name, field and flag (without dashes) of each setting."""
    for name, field in cls.model_fields.items():
        if not field.exclude:
            marks = [mark.flag for mark in field.metadata if isinstance(mark, Repeatable)]
            yield name, field, marks[0] if marks else _key(name)


def _key(name: str) -> str:
    return name.replace("_", "-")


S = TypeVar("S", bound=ServiceSettings)


# -- sources --------------------------------------------------------------------------------------------


def _parser(cls: type[ServiceSettings]) -> argparse.ArgumentParser:
    """Builds the parser of a service's flags.

    The parser of pydantic-settings exposes every field as a flag, even secrets.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {cls.program}",
        description=cls.description,
        epilog="Each flag can be set in the environment too, --secret-file as "
        + " or ".join(f"{prefix}SECRET_FILE" for prefix in cls.prefixes),
    )
    add = parser.add_argument
    add(
        "--config-file", metavar="FILE", help="TOML file with settings; flags and the environment override it"
    )
    add("--check-config", action="store_true", help="print the settings and their origins, then exit")
    add("--json", action="store_true", help="with --check-config: print JSON")
    for name, field, flag in _settings(cls):
        options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
        if field.annotation is bool:
            options |= {"action": "store_const", "const": "true"}
        else:
            rules = [rule for rule in field.metadata if isinstance(rule, Rule)]
            options["metavar"] = rules[0].metavar if rules else None
            if any(isinstance(mark, Repeatable) for mark in field.metadata):
                options["action"] = "append"
        default = "" if field.is_required() or field.annotation is bool else _shown(field.default)
        suffix = f" (default {default})" if default not in ("", "-") else ""
        add(f"--{flag}", help=f"{field.description}{suffix}".replace("%", "%%"), **options)
    return parser


def _read_environment(
    cls: type[ServiceSettings], environment: Mapping[str, str], prefix: str
) -> dict[str, str]:
    source = EnvSettingsSource(cls, env_prefix=prefix)
    source.env_vars = {name.lower(): text for name, text in environment.items()}
    found = source()
    return {name: found[name] for name, _, _ in _settings(cls) if name in found}


def _read_file(cls: type[ServiceSettings], path: Path) -> tuple[dict[str, str], list[str]]:
    """Reads a service's sections: the texts of its settings, and errors."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings([f"{path} cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"{path} must be TOML: {error}"]) from None
    names = {_key(name): name for name, _, _ in _settings(cls)}
    renamed = {flag: _key(name) for name, _, flag in _settings(cls)}
    found: dict[str, str] = {}
    errors = [
        f"{path}: a section must be one of {', '.join(SECTIONS)}, got {name}"
        for name in sorted(document.keys() - set(SECTIONS))
    ]
    for section in SECTIONS:
        values = document.get(section, {})
        if not isinstance(values, dict):
            errors.append(f"{path}: {section} must be a section, with [{section}] above its settings")
            continue
        for key, value in values.items() if section in ("network", cls.section) else ():
            if key not in names:
                hint = f'write {renamed[key]} = ["…"]' if key in renamed else "`--help` lists the settings"
                errors.append(f"{path}: setting {key} does not exist; {hint}")
            elif (text := _text(value)) is not None:
                found[names[key]] = text
            else:
                rule = "a string, a number, true or false, or a list of strings"
                errors.append(f"{path}, [{section}] {key} must be {rule}, got {value}")
    return found, errors


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return None


def _load(
    cls: type[S], flags: dict[str, Any], environment: Mapping[str, str], file: str | None
) -> tuple[S, dict[str, str]]:
    """Merges and validates the sources; returns settings and origins. Reports all errors at once."""
    texts = {name: ",".join(text) if isinstance(text, list) else text for name, text in flags.items()}
    origins = dict.fromkeys(texts, "flag")
    places: dict[str, str] = {}
    for prefix in cls.prefixes:
        for name, text in _read_environment(cls, environment, prefix).items():
            if name not in texts:
                texts[name], origins[name] = text, "environment"
                places[name] = f" (in {prefix}{name.upper()})"
    errors: list[str] = []
    variables = (environment.get(f"{prefix}CONFIG_FILE") for prefix in cls.prefixes)
    if file := file or next(filter(None, variables), None):
        from_file, errors = _read_file(cls, Path(file))
        for name in from_file.keys() - texts.keys():
            texts[name], origins[name], places[name] = from_file[name], "file", f" (in {file})"
    for name, field, _ in _settings(cls):
        if field.is_required() and not texts.get(name, "given").strip(" ,"):
            del texts[name]
    try:
        settings = cls.model_validate(texts)
    except ValidationError as error:
        flags_by_name = {name: flag for name, _, flag in _settings(cls)}
        for found in error.errors():
            name = str(found["loc"][0])
            if found["type"] == "missing":
                variable = f"{cls.prefixes[0]}{name.upper()}"
                errors.append(f"--{flags_by_name[name]} is required (or {variable} in the environment)")
            else:
                errors.append(f"--{flags_by_name[name]} {found['msg']}{places.get(name, '')}")
    if errors:
        raise InvalidSettings(errors)
    return settings, origins


# -- reports --------------------------------------------------------------------------------------------


def _report(settings: ServiceSettings, origins: Mapping[str, str], *, as_json: bool) -> Iterator[str]:
    """Lists each setting with its value and origin."""
    rows = [
        (flag, _hidden(name, getattr(settings, name)), origins.get(name, "default"))
        for name, _, flag in _settings(type(settings))
    ]
    if as_json:
        shown = {flag: {"value": value, "origin": origin} for flag, value, origin in rows}
        yield json.dumps({"settings": shown, "errors": []}, default=str) + "\n"
    else:
        yield from (f"{flag:<24} {_shown(value):<40} {origin}\n" for flag, value, origin in rows)


def _hidden(name: str, value: Any) -> Any:
    """Hides the password of the database."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*(?=@)", r"\1:…", value) if name == "database" and value else value


def _shown(value: Any) -> str:
    if value in (None, "", ()):
        return "-"
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
