"""Certificates of processes and clients: refused files, renewal, and the development authority."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

import dispatcher.__main__
import edn_server.__main__
from edn.cli import certificates
from edn.cli.certificates import prepare_certificates
from edn.client import Client
from edn.client.tls import TlsOptions, explain
from edn.errors import CannotStart
from edn.http.tls import Tls, TlsFiles

AUTHORITY = trustme.CA()
NOW = datetime.now(UTC)


def issue(folder: Path, *names: str, authority: trustme.CA = AUTHORITY, **life: datetime) -> TlsFiles:
    """Write a certificate and its key, and the authority."""
    made = authority.issue_cert(*(names or ("127.0.0.1", "localhost")), **life)
    folder.mkdir(exist_ok=True)
    files = TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    assert files.cert
    assert files.key
    assert files.ca
    files.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    files.key.write_bytes(made.private_key_pem.bytes())
    files.key.chmod(0o600)
    files.ca.write_bytes(authority.cert_pem.bytes())
    return files


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> x509.Certificate:
    """Return the certificate that the server presents; raises `ssl.SSLError` if one side refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(down, up, server_hostname=name)
    right = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (left, right):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    presented = left.getpeercert(binary_form=True)
    assert presented is not None
    return x509.load_der_x509_certificate(presented)


def serial(file: Path | None) -> int:
    assert file is not None
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


def _replace(name: str, content: bytes) -> Callable[[TlsFiles], None]:
    def change(files: TlsFiles) -> None:
        getattr(files, name).write_bytes(content)

    return change


def _encrypt(files: TlsFiles) -> None:
    assert files.key
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"word")
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )


def _open_to_others(files: TlsFiles) -> None:
    assert files.key
    files.key.chmod(0o644)


REFUSED: list[tuple[Callable[[TlsFiles], None], str]] = [
    (lambda files: files.cert and files.cert.unlink(), "--tls-cert .*/cert.pem cannot be read: No such file"),
    (lambda files: files.key and files.key.unlink(), "--tls-key .*/key.pem cannot be read: No such file"),
    (lambda files: files.ca and files.ca.unlink(), "--tls-ca .*/ca.pem cannot be read: No such file"),
    (_replace("cert", b"x"), "--tls-cert .*/cert.pem must be a certificate in PEM"),
    (_replace("ca", b"x"), "--tls-ca .*/ca.pem must be a certificate in PEM"),
    (_replace("key", b"x"), "--tls-key .*/key.pem must be a private key in PEM"),
    (
        _replace("key", AUTHORITY.issue_cert("other").private_key_pem.bytes()),
        "--tls-key .*/key.pem must be the key of --tls-cert .*/cert.pem, got another key",
    ),
    (_encrypt, "--tls-key .*/key.pem must not be encrypted"),
    (_open_to_others, "--tls-key .*/key.pem must not be accessible to other users; `chmod 600"),
    (
        lambda files: (
            (issue(files.ca.parent, not_after=NOW - timedelta(days=1)), None)[1] if files.ca else None
        ),
        rf"--tls-cert .*/cert.pem expired on {NOW - timedelta(days=1):%Y-%m-%d} \d\d:\d\d UTC",
    ),
    (
        lambda files: (
            (issue(files.ca.parent, not_before=NOW + timedelta(days=2)), None)[1] if files.ca else None
        ),
        rf"--tls-cert .*/cert.pem is not valid before {NOW + timedelta(days=2):%Y-%m-%d}",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_wrong_files_are_refused_in_one_line(
    tmp_path: Path, spoil: Callable[[TlsFiles], None], message: str
) -> None:
    files = issue(tmp_path)
    spoil(files)
    with pytest.raises(CannotStart, match=message) as caught:
        Tls(files)
    assert "\n" not in caught.value.detail


@pytest.mark.parametrize("service", ["dispatcher", "server"])
def test_a_process_with_wrong_files_does_not_start(
    tmp_path: Path, service: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = issue(tmp_path, not_after=NOW - timedelta(days=1))
    (tmp_path / "secret").write_text("a secret of the tests, long enough")
    options = ["--data", str(tmp_path / "data"), "--secret-file", str(tmp_path / "secret"), "--port", "0"]
    options += ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
    monkeypatch.setattr("os.umask", lambda _: 0)
    monkeypatch.setattr("structlog.configure", lambda **_: None)
    if service == "dispatcher":
        code = dispatcher.__main__.main(options)
    else:
        code = edn_server.__main__.main([*options, "--id", "s1", "--dispatcher", "https://127.0.0.1:9"])
    assert code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"--tls-cert {files.cert} expired on" in line


def test_a_certificate_needs_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    required = ["--data", str(tmp_path), "--secret-file", "/s"]
    assert dispatcher.__main__.main([*required, "--tls-cert", "/c"]) == 2
    assert "--tls-key is required with --tls-cert" in capsys.readouterr().err
    assert dispatcher.__main__.main([*required, "--tls-key", "/k"]) == 2
    assert "--tls-key must be given together with --tls-cert" in capsys.readouterr().err


def test_without_files_nothing_changes() -> None:
    tls = Tls(TlsFiles())
    assert (tls.server, tls.client, tls.guards_internal) == (None, True, False)


def test_both_sides_check_each_other(tmp_path: Path) -> None:
    files = issue(tmp_path / "one")
    other = issue(tmp_path / "other", authority=trustme.CA())
    tls, foreign = Tls(files), Tls(other)
    assert tls.server
    assert foreign.server
    assert isinstance(tls.client, ssl.SSLContext)
    assert isinstance(foreign.client, ssl.SSLContext)
    assert shake_hands(tls.server, tls.client).serial_number == serial(files.cert)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed"):
        shake_hands(foreign.server, tls.client)
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(tls.server, tls.client, "127.0.0.2")
    # It trusts the server, but has no certificate.
    anonymous = ssl.create_default_context(cafile=str(files.ca))
    with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate"):
        shake_hands(tls.server, anonymous)
    optional = Tls(files, "internal")
    assert optional.server
    assert optional.guards_internal
    assert shake_hands(optional.server, anonymous).serial_number == serial(files.cert)


def test_renewed_files_are_loaded_once_they_fit_together(tmp_path: Path) -> None:
    files = issue(tmp_path / "now")
    fresh = issue(tmp_path / "next")
    tls = Tls(files)
    assert tls.server
    assert files.cert
    assert files.key
    assert fresh.cert
    assert fresh.key
    assert isinstance(tls.client, ssl.SSLContext)
    first, before = serial(files.cert), files.state()
    files.cert.write_bytes(fresh.cert.read_bytes())
    assert files.state() != before
    assert not tls.reload()
    assert shake_hands(tls.server, tls.client).serial_number == first
    files.key.write_bytes(fresh.key.read_bytes())
    assert tls.reload()
    assert shake_hands(tls.server, tls.client).serial_number == serial(fresh.cert) != first
    files.cert.unlink()
    assert not tls.reload()
    assert shake_hands(tls.server, tls.client).serial_number == serial(fresh.cert)


def test_an_authority_is_added_and_removed_without_a_restart(tmp_path: Path) -> None:
    files, foreign = issue(tmp_path / "ours"), issue(tmp_path / "foreign", authority=trustme.CA())
    tls, other = Tls(files), Tls(foreign)
    assert tls.server and other.server  # noqa: PT018
    assert isinstance(tls.client, ssl.SSLContext)
    assert isinstance(other.client, ssl.SSLContext)
    assert files.ca and foreign.ca  # noqa: PT018
    tls.client.set_alpn_protocols(["http/1.1"])  # as HTTP clients do; a reload must keep it
    ours, theirs = files.ca.read_bytes(), foreign.ca.read_bytes()
    for authorities, is_trusted in ((ours, False), (ours + theirs, True), (ours, False)):
        files.ca.write_bytes(authorities)
        assert tls.reload()
        foreign.ca.write_bytes(ours + theirs)
        assert other.reload()
        for server, client in ((tls.server, other.client), (other.server, tls.client)):
            if is_trusted:
                shake_hands(server, client)
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    shake_hands(server, client)
    shake_hands(tls.server, tls.client)


# -- clients --------------------------------------------------------------------------------------------


def test_a_client_names_the_file_that_it_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, other = issue(tmp_path / "one"), issue(tmp_path / "other")
    (tmp_path / "text").write_text("no certificate")
    cases = [
        ({"tls_ca": "/absent"}, "tls_ca /absent cannot be read: No such file or directory"),
        ({"tls_ca": tmp_path / "text"}, "tls_ca .*/text must be a certificate in PEM"),
        ({"tls_cert": files.cert}, "tls_key is required: a certificate and its key are given together"),
        ({"tls_key": files.key}, "tls_cert is required"),
        ({"tls_cert": files.cert, "tls_key": other.key}, "tls_key .* must be the key of .*, got another key"),
        ({"tls_cert": tmp_path / "text", "tls_key": files.key}, "must be a certificate and its key in PEM"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            Client("https://127.0.0.1:9", **given)  # type: ignore[arg-type]
    monkeypatch.setenv("EDN_TLS_CA", "/absent")
    Client("http://127.0.0.1:9").close()  # they are not needed
    with pytest.raises(ValueError, match="tls_ca /absent"):
        Client("https://127.0.0.1:9")
    assert TlsOptions.choose("a", None, None) == TlsOptions("a", None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:9)",
            "its certificate is not accepted: certificate has expired",
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: IP address mismatch, certificate is "
            "not valid for '127.0.0.1'. (_ssl.c:1006)",
            "its certificate is not accepted: IP address mismatch, certificate is not valid for '127.0.0.1'",
        ),
        (
            "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)",
            "it requires a client certificate: give --tls-cert and --tls-key",
        ),
        ("[Errno 111] Connection refused", None),
    ],
)
def test_a_failed_handshake_is_explained(text: str, reason: str | None) -> None:
    assert explain(httpx.ConnectError(text)) == reason


# -- the development authority --------------------------------------------------------------------------


def test_development_certificates_are_created_once_and_renewed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tls"
    made = prepare_certificates(folder, "127.0.0.1")
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    tls = Tls(TlsFiles(made.cert, made.key, made.ca), "internal")
    assert tls.server
    client = ssl.create_default_context(cafile=str(made.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("127.0.0.1", "::1", "localhost"):
        assert shake_hands(tls.server, client, name).serial_number == serial(made.cert)
    first, authority = serial(made.cert), made.ca.read_bytes()
    assert serial(prepare_certificates(folder, "127.0.0.1").cert) == first
    second = serial(prepare_certificates(folder, "edn.example.org").cert)
    assert second != first
    tls.reload()
    assert shake_hands(tls.server, client, "edn.example.org").serial_number == second
    monkeypatch.setattr(certificates, "RENEW_TIME", certificates.PROCESS_TIME + timedelta(days=1))
    assert serial(prepare_certificates(folder, "127.0.0.1").cert) not in (first, second)
    assert made.ca.read_bytes() == authority
    # A lost authority makes a new one, and a certificate of it.
    made.ca.unlink()
    again = prepare_certificates(folder, "127.0.0.1")
    assert again.ca.read_bytes() != authority
    Tls(TlsFiles(again.cert, again.key, again.ca))
