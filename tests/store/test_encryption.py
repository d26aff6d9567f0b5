"""TLS to the database: the URL says what is checked, and a wrong certificate is refused with one line."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
import trustme

from edn.runtime.postgres.database import Database
from edn.runtime.process import CannotStart
from tests.postgres import Cluster
from tests.store.conftest import new_database


@pytest.fixture
def authority(postgres: Cluster) -> trustme.CA:
    """Encrypt the connections of the test server from now on; plain ones are accepted as before."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    owner = postgres.data.stat()
    name = f"tls-{secrets.token_hex(4)}"
    for suffix, content in (
        ("crt", certificate.cert_chain_pems[0].bytes()),
        ("key", certificate.private_key_pem.bytes()),
    ):
        path = postgres.data / f"{name}.{suffix}"
        path.write_bytes(content)
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    for setting, value in (("ssl_cert_file", f"{name}.crt"), ("ssl_key_file", f"{name}.key"), ("ssl", "on")):
        postgres.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
    postgres.execute("SELECT pg_reload_conf()")
    return authority


def test_connections_are_encrypted_and_checked(
    authority: trustme.CA, postgres: Cluster, tmp_path: Path
) -> None:
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(roots)
    plain = new_database(postgres)
    url = f"{plain.url}?sslmode=verify-full&sslrootcert={roots}"
    database = Database.parse(url, plain.schema, allow_single=True)
    database.check()
    session = database.connect("edn: test")
    try:
        row = session.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        assert row == (True,)
    finally:
        session.close()

    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    wrong = Database.parse(f"{plain.url}?sslmode=verify-full&sslrootcert={other}", allow_single=True)
    with pytest.raises(CannotStart, match="certificate verify failed") as refused:
        wrong.check()
    assert "\n" not in refused.value.detail

    named = plain.url.replace("127.0.0.1", "localhost") + f"?sslmode=verify-full&sslrootcert={roots}"
    with pytest.raises(CannotStart, match="does not match host name"):
        Database.parse(named, allow_single=True).check()
