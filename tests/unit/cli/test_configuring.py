"""Settings by file, environment and flag: one precedence, and errors that name the place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dispatcher.__main__
import dispatcher.config
import edn_server.__main__
import edn_server.config
from edn.cli.app import app
from edn.runtime.config import InvalidSettings, ServiceSettings
from edn.runtime.process import CannotStart

SECRET = "a secret of the tests, long enough"
CLASSES: dict[str, type[ServiceSettings]] = {
    "dispatcher": dispatcher.config.Settings,
    "server": edn_server.config.Settings,
}
MAINS = {"dispatcher": dispatcher.__main__.main, "server": edn_server.__main__.main}
load = edn_server.config.Settings.load
load_dispatcher = dispatcher.config.Settings.load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    path = tmp_path / "edn.toml"
    path.write_text(
        f"""
        [network]
        secret-file = "{tmp_path}/secret"

        [dispatcher]
        data = "{tmp_path}/d"
        port = 1001
        bloom = true

        [server]
        id = "s1"
        data = "{tmp_path}/s"
        port = 2001
        dispatcher = ["http://10.0.0.1:8080", "http://10.0.0.2:8080"]
        batch-delay = 0.5
        """
    )
    return path


@pytest.fixture
def required(tmp_path: Path) -> dict[str, str]:
    """Variables that both services need."""
    (tmp_path / "secret").write_text(SECRET)
    return {
        "EDN_DATA": str(tmp_path),
        "EDN_SECRET_FILE": str(tmp_path / "secret"),
        "EDN_SERVER_ID": "s1",
        "EDN_SERVER_DISPATCHER": "http://10.0.0.1:8080",
    }


@pytest.mark.parametrize(
    ("environment", "flags", "port"),
    [
        ({}, [], 2001),
        ({"EDN_PORT": "2002"}, [], 2002),
        ({"EDN_SERVER_PORT": "2003", "EDN_PORT": "2002"}, [], 2003),
        ({"EDN_SERVER_PORT": "2003"}, ["--port", "2004"], 2004),
    ],
)
def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    file: Path, environment: Mapping[str, str], flags: list[str], port: int
) -> None:
    settings = load(["--config-file", str(file), *flags], environment)
    assert settings.port == port
    assert settings.id == "s1"
    assert settings.secret == SECRET
    assert settings.dispatcher == ("http://10.0.0.1:8080", "http://10.0.0.2:8080")
    assert settings.batching.delay == 0.5


def test_the_dispatcher_reads_the_same_file(file: Path) -> None:
    environment = {"EDN_CONFIG_FILE": str(file)}
    read = load_dispatcher([], environment)
    assert read.port == 1001
    assert read.bloom is True
    assert load_dispatcher(["--port", "1002"], environment).port == 1002


def test_a_flag_may_be_repeated_and_a_variable_is_a_list(file: Path) -> None:
    environment = {"EDN_CONFIG_FILE": str(file)}
    assert load([], {**environment, "EDN_DISPATCHER": "http://10.0.0.9:1"}).dispatcher == (
        "http://10.0.0.9:1",
    )
    named = ["http://10.0.0.7:1/", "http://10.0.0.8:1", "http://10.0.0.7:1"]
    flags = [part for url in named for part in ("--dispatcher", url)]
    assert load(flags, environment).dispatcher == ("http://10.0.0.7:1", "http://10.0.0.8:1")


#: a value for every setting that has a rule of its own; the others are numbers, names or switches
EXAMPLES = {
    "data": "/d",
    "database": "postgresql://ann@10.0.0.5,10.0.0.6/edn",
    "database-schema": "edn_two",
    "secret-file": "/s",
    "smtp-password-file": "/p",
    "sink-ca-file": "/c",
    "dispatcher": "http://10.0.0.5:1",
    "advertise": "http://10.0.0.6:1",
    "webhook-callback": "https://edn.example.org",
    "uncounted-clients": "10.0.0.0/8",
    "allow-sink-networks": "10.0.0.0/8",
    "nameservers": "9.9.9.9:53",
    "location": "1.5,2",
    "retry-steps": "3,4",
    "placement": "random",
    "router": "rtree",
    "cut": "level",
    "tuning": "paper",
    "tls-clients": "internal",
    "host": "127.0.0.2",
    "admin-host": "127.0.0.2",
}


@pytest.mark.parametrize("section", ["dispatcher", "server"])
@pytest.mark.parametrize(
    "excluded", [{"database", "spare", "spare_for"}, {"data"}], ids=["folder", "database"]
)
def test_every_setting_can_be_set_by_flag_environment_and_file(
    section: str, excluded: set[str], tmp_path: Path
) -> None:
    cls = CLASSES[section]
    listed = [name for name, field in cls.model_fields.items() if not field.exclude]
    names = [name for name in listed if name not in excluded]
    assert {name for name, field in cls.model_fields.items() if field.exclude} == (
        {"secret", "secret_keys", "url" if section == "dispatcher" else "smtp_password"}
    )
    texts = {name: EXAMPLES.get(name.replace("_", "-"), "7") for name in names}
    texts |= {name: "true" for name in names if cls.model_fields[name].annotation is bool}
    flags: list[str] = []
    for name, text in texts.items():
        flag = "--" + name.replace("_", "-").replace("networks", "network")
        flags += [flag] if text == "true" else [flag, text]
    path = tmp_path / "edn.toml"
    lines = [f'{name.replace("_", "-")} = "{text}"' for name, text in texts.items()]
    path.write_text("\n".join([f"[{section}]", *lines]))
    environment = {cls.prefixes[0] + name.upper(): text for name, text in texts.items()}
    shown = [
        reported(cls, flags, {}),
        reported(cls, [], environment),
        reported(cls, ["--config-file", str(path)], {}),
    ]
    for report, origin in zip(shown, ["flag", "environment", "file"], strict=True):
        assert len(report) == len(listed)
        unset = {name.replace("_", "-") for name in excluded}
        assert {one["origin"] for flag, one in report.items() if flag not in unset} == {origin}
    values = [{flag: one["value"] for flag, one in report.items()} for report in shown]
    assert values[0] == values[1] == values[2]


DATABASE = ["--database", "postgresql://ann:hidden@10.0.0.5/edn", "--secret-file", "/s"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*DATABASE, "--data", "/d"], "--data must not be given together with --database"),
        ([*DATABASE, "--name", "a b"], "--name must be 1 to 64 of A-Z a-z 0-9 _ . -, got"),
        ([*DATABASE, "--database-schema", "Two"], "--database-schema must be up to 41"),
        (["--database", "mysql://a/b", "--secret-file", "/s"], "--database must be a URL postgresql://"),
        (["--secret-file", "/s"], "--data is required"),
    ],
)
def test_a_process_has_a_data_folder_or_a_database(flags: list[str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(message)):
        CLASSES["dispatcher"].load([*flags, "--check-config"], {})


def test_the_password_of_the_database_is_not_shown() -> None:
    shown = reported(CLASSES["dispatcher"], DATABASE, {})
    assert shown["database"]["value"] == "postgresql://ann:…@10.0.0.5/edn"


def reported(cls: type[ServiceSettings], flags: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Return the JSON of --check-config."""
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout.writelines", written.extend, raising=False)
        with pytest.raises(SystemExit) as ended:
            cls.load([*flags, "--check-config", "--json"], environment)
    assert ended.value.code == 0
    report: dict[str, Any] = json.loads("".join(written))
    assert report["errors"] == []
    settings: dict[str, Any] = report["settings"]
    return settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server", "must be TOML"),
        ("[sever]\nid = 's1'", "a section must be one of network, dispatcher, server, got sever"),
        ("[server]\nidd = 's1'", "setting idd does not exist; `--help` lists the settings"),
        ("[server]\nport = {a = 1}", r"\[server\] port must be a string, a number, true or false"),
        ("network = 'mine'", r"network must be a section, with \[network\]"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "edn.toml"
    path.write_text(text)
    with pytest.raises(CannotStart, match=words):
        load(["--config-file", str(path)], {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot be read"):
        load([], {"EDN_CONFIG_FILE": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("section", "line", "words"),
    [
        ("dispatcher", 'tuning = "guess"', '--tuning must be one of fixed, paper, model, got "guess"'),
        (
            "server",
            'advertise = "10.0.0.2"',
            "--advertise must be an address such as http://10.0.0.2:8080",
        ),
        ("dispatcher", 'peers = ["http://10.0.0.2:8080"]', "setting peers does not exist"),
        ("dispatcher", 'open = "perhaps"', '--open must be true or false, got "perhaps"'),
        ("dispatcher", "port = 70000", '--port must be an integer from 0 to 65535, got "70000"'),
        ("server", "port = 70000", '--port must be an integer from 0 to 65535, got "70000"'),
        ("server", 'smtp-port = "mail"', '--smtp-port must be an integer from 0 to 65535, got "mail"'),
        ("server", 'allow-loopback-sinks = "perhaps"', "--allow-loopback-sinks must be true or false, got"),
        ("server", "batch-events = 0", '--batch-events must be an integer of 1 or more, got "0"'),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_value_that_its_flag_refuses_is_named_whether_it_is_checked_or_used(
    tmp_path: Path, section: str, line: str, words: str, check: bool
) -> None:
    path = tmp_path / "edn.toml"
    wanted = f'data = "{tmp_path}/d"\nsecret-file = "{tmp_path}/secret"'
    more = 'id = "s1"' if section == "server" else ""
    if section == "server" and not line.startswith("dispatcher"):
        more += '\ndispatcher = "http://10.0.0.1:8080"'
    path.write_text(f"[{section}]\n{wanted}\n{more}\n{line}\n")
    (tmp_path / "secret").write_text(SECRET)
    arguments = ["--config-file", str(path), *(["--check-config"] if check else [])]
    with pytest.raises(InvalidSettings) as refused:
        CLASSES[section].load(arguments, {})
    [error] = refused.value.errors
    assert words in error
    assert str(path) in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("no", False), ("off", False), ("", False)],
)
def test_a_switch_means_the_same_in_both_services(
    required: dict[str, str], text: str, expected: bool
) -> None:
    environment = required | {"EDN_ALLOW_LOOPBACK_SINKS": text}
    assert load([], environment).allow_loopback_sinks is expected
    assert load_dispatcher([], environment).allow_loopback_sinks is expected


@pytest.mark.parametrize(
    "switch", ["open", "allow_loopback_sinks", "allow_mail_sinks", "require_consent", "bloom"]
)
@pytest.mark.parametrize(("text", "expected"), [("1", True), ("true", True), ("no", False)])
def test_every_switch_of_the_dispatcher_takes_the_same_words(
    required: dict[str, str], switch: str, text: str, expected: bool
) -> None:
    assert getattr(load_dispatcher([], required | {f"EDN_{switch.upper()}": text}), switch) is expected


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--load-threshold", "0", "an integer of 1 or more"),
        ("--lag-limit", "-1", "an integer of 0 or more"),
        ("--placement-spread", "many", "an integer of 0 or more"),
        ("--placement-spread", "1.5", "an integer of 0 or more"),
        ("--placement-seed", "a", "an integer"),
        ("--tenant-topics", "inf", "an integer of 0 or more"),
        ("--admin-port", "-2", "an integer from -1 to 65535"),
        ("--load-factor", "0.5", "0, or a number of 1 or more"),
        ("--tuning-seconds", "0", "a number above 0"),
        ("--repartition-seconds", "nan", "a number above 0"),
        ("--repartition-threshold", "-0.1", "a number of 0 or more"),
        ("--link-bytes", "0", "a number above 0"),
        ("--router", "tree", "one of bitmap, rtree"),
    ],
)
def test_a_number_that_cannot_be_says_what_would_be_right(
    required: dict[str, str], flag: str, text: str, words: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_dispatcher([f"{flag}={text}"], required)
    assert refused.value.errors == [f'{flag} must be {words}, got "{text}"']


@pytest.mark.parametrize(
    ("flag", "text", "name", "expected"),
    [
        ("--lag-limit", "0", "lag_limit", None),
        ("--lag-limit", "5", "lag_limit", 5),
        ("--load-factor", "0", "load_factor", None),
        ("--admin-port", "-1", "admin_port", None),
        ("--admin-port", "0", "admin_port", 0),
        ("--placement-seed", "-3", "placement_seed", -3),
        ("--link-bytes", "", "link_bytes", None),
        ("--retained-bytes", "1e6", "retained_bytes", 1_000_000),
        ("--allowed-hosts", "a.example, b.example,", "allowed_hosts", ("a.example", "b.example")),
    ],
)
def test_special_values_keep_their_meaning(
    required: dict[str, str], flag: str, text: str, name: str, expected: object
) -> None:
    assert getattr(load_dispatcher([f"{flag}={text}"], required), name) == expected


def test_a_spare_needs_a_database_and_no_id(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough")
    base = ["--dispatcher", "http://10.0.0.5:1", "--secret-file", str(secret)]
    database = ["--database", "postgresql://10.0.0.5/edn"]
    cases = {
        ("--spare", "--data", "/d"): ["--spare must be given together with --database"],
        (*database, "--id", "s1", "--spare-for", "s1"): ["--spare-for must be given together with --spare"],
        (*database,): ["--id is required (or EDN_SERVER_ID in the environment)"],
        (*database, "--spare", "--spare-for", "s1,a b"): [
            '--spare-for must be ids of servers, separated by commas, got "a b"'
        ],
    }
    for flags, expected in cases.items():
        with pytest.raises(InvalidSettings) as refused:
            load([*base, *flags], {})
        assert [error for error in refused.value.errors if "--id" not in error or flags == (*database,)] == (
            expected
        )
    read = load([*base, *database, "--spare", "--spare-for", "s1, s2"], {})
    assert (read.id, read.spare, read.spare_for) == ("", True, ("s1", "s2"))


def test_all_errors_are_reported_at_once_and_name_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "edn.toml"
    path.write_text('[server]\nidd = "s1"\nport = 70000\n[other]\n')
    arguments = ["--config-file", str(path), "--nice", "x", "--check-config"]
    expected = [
        f"{path}: a section must be one of network, dispatcher, server, got other",
        f"{path}: setting idd does not exist; `--help` lists the settings",
        "--data is required (or EDN_SERVER_DATA in the environment)",
        "--secret-file is required (or EDN_SERVER_SECRET_FILE in the environment)",
        "--id is required (or EDN_SERVER_ID in the environment)",
        "--dispatcher is required (or EDN_SERVER_DISPATCHER in the environment)",
        f'--port must be an integer from 0 to 65535, got "70000" (in {path})',
        '--nice must be an integer from 0 to 19, got "x"',
        '--distance must be a number above 0, got "0" (in EDN_DISTANCE)',
    ]
    with pytest.raises(InvalidSettings) as refused:
        load(arguments, {"EDN_DISTANCE": "0"})
    assert sorted(refused.value.errors) == sorted(expected)
    with pytest.raises(SystemExit) as ended:
        load([*arguments, "--json"], {"EDN_DISTANCE": "0"})
    assert ended.value.code == 2
    report = json.loads(capsys.readouterr().out)
    assert sorted(report["errors"]) == sorted(expected)


@pytest.mark.parametrize("section", ["dispatcher", "server"])
def test_a_process_ends_with_2_for_wrong_settings_and_with_1_for_a_missing_secret(
    section: str,
    required: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = CLASSES[section].program
    monkeypatch.setattr("os.environ", required)
    assert MAINS[section](["--port", "x", "--host", "10.0.0.1", "--clock-jump-seconds", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == [
        f'{program}: --clock-jump-seconds must be a number above 0, got "0"',
        f'{program}: --port must be an integer from 0 to 65535, got "x"',
    ]
    assert MAINS[section](["--secret-file", "/nonexistent"]) == 1
    assert "the secret file /nonexistent cannot be read" in capsys.readouterr().err


def test_open_is_refused_beyond_loopback(required: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="--open requires no API key, so --host must be a loopback"):
        load_dispatcher(["--open", "--host", "0.0.0.0"], required)
    assert load_dispatcher(["--open", "--host", "::1"], required).open


def test_constructing_settings_reads_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDN_PORT", "1")
    assert dispatcher.config.Settings(data=tmp_path, secret=SECRET).port == 8080


def test_secrets_are_read_from_files_only_and_not_shown(required: dict[str, str]) -> None:
    read = load([], required | {"EDN_SECRET": "x" * 20, "EDN_SERVER_SMTP_PASSWORD": "y"})
    assert (read.secret, read.smtp_password) == (SECRET, "")
    assert SECRET not in repr(read)


def test_the_password_of_the_relay_comes_from_its_file(tmp_path: Path, required: dict[str, str]) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    read = load(["--smtp-password-file", str(tmp_path / "password")], required)
    assert (read.smtp_password, read.secret) == ("open sesame", SECRET)


def test_checking_says_where_each_setting_comes_from(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config-file", str(file), "--check-config", "--host", "::1"]
    with pytest.raises(SystemExit) as ended:
        load(arguments, {"EDN_SERVER_PORT": "2003"})
    assert ended.value.code == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert shown["host"] == ["::1", "flag"]
    assert shown["port"] == ["2003", "environment"]
    assert shown["id"] == ["s1", "file"]
    assert shown["batch-delay"] == ["0.5", "file"]
    assert shown["attempt-seconds"] == ["15", "default"]
    assert shown["advertise"] == ["-", "default"]
    assert SECRET not in str(shown)


@pytest.mark.slow  # it starts both services' programs
def test_the_command_checks_both_services(file: Path) -> None:
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 0, result.output
    assert "[dispatcher]" in result.output
    assert "[server]" in result.output
    file.write_text(file.read_text().replace("port = 1001", "prot = 1001\ncut = 'no'"))
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert "setting prot does not exist" in result.output
    assert "--cut must be one of waste, weighted, level" in result.output
    result = CliRunner().invoke(app, ["config", "check", str(file), "--json"])
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert [len(report[name]["errors"]) for name in ("dispatcher", "server")] == [2, 0]
    assert report["server"]["settings"]["port"] == {"value": 2001, "origin": "file"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe" * 20, "must be text"),
        (b"short", "must have at least 16 characters, got 5"),
        (None, "cannot be read"),
    ],
)
def test_a_secret_that_is_none_is_named(file: Path, content: bytes | None, words: str) -> None:
    secret = file.parent / "secret"
    secret.unlink() if content is None else secret.write_bytes(content)
    with pytest.raises(CannotStart, match=words):
        load(["--config-file", str(file)], {})


def test_keys_of_stored_secrets_come_from_the_environment_and_are_not_shown(
    required: Mapping[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = {"EDN_SECRET_KEYS": f"{'a1' * 32},{'b2' * 32}"}
    flags = ["--data", str(tmp_path / "data")]
    settings = load_dispatcher(flags, {**required, **keys})
    assert len(settings.open_box().key_ids) == 2
    assert not (tmp_path / "data").exists()
    own = {"EDN_SERVER_SECRET_KEYS": "c3" * 32}
    assert len(load(flags, {**required, **keys, **own}).open_box().key_ids) == 1
    assert "a1a1" not in repr(settings)
    with pytest.raises(SystemExit):
        load_dispatcher([*flags, "--check-config"], {**required, **keys})
    assert "a1a1" not in capsys.readouterr().out
    with pytest.raises(CannotStart, match="must not be given together"):
        load_dispatcher([*flags, "--secret-key-file", "/k"], {**required, **keys}).open_box()
    # Without any, the folder gets a key file.
    assert load_dispatcher(flags, required).open_box().key_ids
    assert (tmp_path / "data" / "secret-keys").stat().st_mode & 0o777 == 0o600
