"""Settings by file, environment and flag: one precedence, and errors that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dispatcher import __main__ as dispatcher_main
from edn.cli.app import app
from edn.process import CannotStart
from edn_server.settings import parse

SECRET = "a secret of the tests, long enough"


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
        peers = ["http://10.0.0.2:8080", "http://10.0.0.3:8080"]

        [server]
        id = "s1"
        data = "{tmp_path}/s"
        port = 2001
        dispatcher = ["http://10.0.0.1:8080", "http://10.0.0.2:8080"]
        batch-delay = 0.5
        """
    )
    return path


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
    settings = parse(["--config-file", str(file), *flags], environment)
    assert settings.port == port
    assert settings.id == "s1"
    assert settings.secret == SECRET
    assert settings.dispatcher == "http://10.0.0.1:8080"
    assert settings.further_dispatchers == ("http://10.0.0.2:8080",)
    assert settings.batching.delay == 0.5


def test_the_dispatcher_reads_the_same_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDN_PORT", "EDN_DATA", "EDN_PEERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDN_CONFIG_FILE", str(file))
    read = dispatcher_main._arguments([])
    assert read.port == 1001
    assert read.bloom is True
    assert read.peer == ["http://10.0.0.2:8080", "http://10.0.0.3:8080"]
    monkeypatch.setenv("EDN_PEERS", "http://10.0.0.9:8080")
    assert dispatcher_main._arguments(["--port", "1002"]).peer == ["http://10.0.0.9:8080"]
    assert dispatcher_main._arguments(["--port", "1002"]).port == 1002


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server", "is no TOML"),
        ("[sever]\nid = 's1'", "no section is called sever"),
        ("[server]\nidd = 's1'", "no setting is called idd"),
        ("[server]\nport = {a = 1}", r"\[server\] port"),
        ("network = 'mine'", r"network is a section; \[network\]"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "edn.toml"
    path.write_text(text)
    with pytest.raises(CannotStart, match=words):
        parse(["--config-file", str(path)], {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot be read"):
        parse([], {"EDN_CONFIG_FILE": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("section", "line", "words"),
    [
        ("dispatcher", 'tuning = "guess"', '--tuning "guess": one of fixed, paper, model is right'),
        ("dispatcher", 'peers = ["10.0.0.2"]', '--peer "10.0.0.2": an address such as'),
        ("dispatcher", 'peer = ["http://10.0.0.2:8080"]', "no setting is called peer; peers = "),
        ("dispatcher", 'open = "perhaps"', 'open is "perhaps"; true or false is right'),
        ("server", "port = 70000", '--port "70000": 0 to 65535 are right'),
        ("server", 'smtp-port = "mail"', '--smtp-port "mail": 0 to 65535 are right'),
        ("server", 'allow-loopback-sinks = "perhaps"', "true or false is right"),
        ("server", "batch-events = 0", '--batch-events "0": a number of 1 or more is right'),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_value_that_its_flag_refuses_is_named_whether_it_is_checked_or_used(
    tmp_path: Path, section: str, line: str, words: str, check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edn.toml"
    wanted = f'data = "{tmp_path}/d"\nsecret-file = "{tmp_path}/secret"'
    more = 'id = "s1"\ndispatcher = "http://10.0.0.1:8080"' if section == "server" else ""
    path.write_text(f"[{section}]\n{wanted}\n{more}\n{line}\n")
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setattr("os.environ", {})
    arguments = ["--config-file", str(path), *(["--check-config"] if check else [])]
    with pytest.raises(CannotStart) as refused:
        parse(arguments, {}) if section == "server" else dispatcher_main._arguments(arguments)
    assert words in str(refused.value)


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("true", True), ("no", False), ("", False)])
def test_a_switch_means_the_same_in_both_services(
    tmp_path: Path, text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    environment = {"EDN_DATA": str(tmp_path), "EDN_SECRET_FILE": str(tmp_path / "secret")}
    environment |= {"EDN_ALLOW_LOOPBACK_SINKS": text}
    more = {"EDN_SERVER_ID": "s1", "EDN_SERVER_DISPATCHER": "http://10.0.0.1:8080"}
    assert parse([], {**environment, **more}).allow_loopback_sinks is expected
    monkeypatch.setattr("os.environ", environment)
    assert dispatcher_main._arguments([]).allow_loopback_sinks is expected


@pytest.mark.parametrize(
    "switch", ["open", "allow_loopback_sinks", "allow_mail_sinks", "require_consent", "bloom"]
)
@pytest.mark.parametrize(("text", "expected"), [("1", True), ("true", True), ("no", False)])
def test_every_switch_of_the_dispatcher_takes_the_same_words(
    tmp_path: Path, switch: str, text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"EDN_DATA": str(tmp_path), "EDN_SECRET_FILE": str(tmp_path / "secret")}
    monkeypatch.setattr("os.environ", {**environment, f"EDN_{switch.upper()}": text})
    assert getattr(dispatcher_main._arguments([]), switch) is expected


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--load-threshold", "0", "a whole number of 1 or more is right"),
        ("--lag-limit", "-1", "a whole number of 0 or more is right"),
        ("--placement-spread", "many", "a whole number of 0 or more is right"),
        ("--load-factor", "0.5", "0, or a number of 1 or more is right"),
        ("--tuning-seconds", "0", "a number above 0 is right"),
        ("--repartition-seconds", "nan", "a number above 0 is right"),
        ("--repartition-threshold", "-0.1", "a number of 0 or more is right"),
        ("--link-bytes", "0", "a number above 0 is right"),
    ],
)
def test_a_number_that_cannot_be_says_what_would_be_right(
    tmp_path: Path, flag: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        dispatcher_main._arguments(["--data", str(tmp_path), "--secret-file", "s", f"{flag}={text}"])
    assert f'argument {flag}: "{text}": {words}' in capsys.readouterr().err


def test_checking_says_where_each_setting_comes_from(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config-file", str(file), "--check-config", "--host", "::1"]
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {"EDN_SERVER_PORT": "2003"})
    assert ended.value.code == 0
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert shown["host"] == ["::1", "flag"]
    assert shown["port"] == ["2003", "environment"]
    assert shown["id"] == ["s1", "file"]
    assert shown["batch-delay"] == ["0.5", "file"]
    assert shown["attempt-seconds"][-1] == "default"
    assert SECRET not in str(shown)


@pytest.mark.slow  # it starts both services' programs
def test_the_command_checks_both_services(file: Path) -> None:
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 0, result.output
    assert "[dispatcher]" in result.output
    assert "[server]" in result.output
    file.write_text(file.read_text().replace("port = 1001", "prot = 1001"))
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert "no setting is called prot" in result.output


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe" * 20, "is no text"), (b"short", "has 5 characters"), (None, "cannot be read")],
)
def test_a_secret_that_is_none_is_named(file: Path, content: bytes | None, words: str) -> None:
    secret = file.parent / "secret"
    secret.unlink() if content is None else secret.write_bytes(content)
    with pytest.raises(CannotStart, match=words):
        parse(["--config-file", str(file)], {})
