"""State per address or URL, as blobs: health, recent attempts, consents."""

from __future__ import annotations

from edn_server.storage.interface import Connection


def health(db: Connection) -> list[tuple[str, bytes]]:
    """Returns (address, state) of addresses that are not healthy."""
    return db.execute("SELECT address, health FROM health").fetchall()


def store_health(db: Connection, address: str, state: bytes | None) -> None:
    """Stores the state of an address; None is healthy."""
    if state is None:
        db.execute("DELETE FROM health WHERE address = ?", (address,))
    else:
        db.execute(
            "INSERT INTO health VALUES (?, ?) ON CONFLICT (address) DO UPDATE SET health = excluded.health",
            (address, state),
        )


def attempts(db: Connection, address: str) -> bytes | None:
    """Returns the stored attempts of an address."""
    row = db.execute("SELECT attempts FROM attempts WHERE address = ?", (address,)).fetchone()
    return None if row is None else bytes(row[0])


def store_attempts(db: Connection, address: str, newest: int, attempts: bytes) -> None:
    """Stores the attempts of an address; `newest`: microseconds."""
    db.execute(
        "INSERT INTO attempts VALUES (?, ?, ?) ON CONFLICT (address)"
        " DO UPDATE SET newest = excluded.newest, attempts = excluded.attempts",
        (address, newest, attempts),
    )


def forget_attempts(db: Connection, before: int) -> None:
    """Deletes the attempts of addresses whose newest attempt is older."""
    db.execute("DELETE FROM attempts WHERE newest < ?", (before,))


def consents(db: Connection) -> list[tuple[str, bytes]]:
    """Returns (URL, consent) of sinks."""
    return db.execute("SELECT url, standing FROM consents").fetchall()


def store_consent(db: Connection, url: str, consent: bytes | None) -> None:
    """Stores the consent of a sink; None deletes it."""
    if consent is None:
        db.execute("DELETE FROM consents WHERE url = ?", (url,))
    else:
        db.execute(
            "INSERT INTO consents VALUES (?, ?) ON CONFLICT (url) DO UPDATE SET standing = excluded.standing",
            (url, consent),
        )
