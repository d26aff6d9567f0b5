"""Seals the secrets that a process stores with AES-256-GCM, so that databases and backups do not show them.

A sealed value is

    1 byte   version of the format
    4 bytes  id of the key: the beginning of a hash of the key, so operators never name keys
    12 bytes nonce, random
    the encrypted bytes and their tag of 16 bytes

The **context** names the place of a value, such as `ring/3f1c/current`. It is authenticated but not stored,
so that a value that somebody copied to another row does not open there.

Keys are lines of a file (`--secret-key-file`) or items of EDN_SECRET_KEYS. The first key seals, all of them
open. To replace a key, put a new one in front, seal everything again (`edn secrets reseal`) and remove the
old one. A random nonce is safe for 2³² values per key.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from edn.errors import CannotStart, UnreadableSecret

KEY_BYTES = 32
#: name of the key file that a process creates in its data folder
KEY_FILE = "secret-keys"
#: environment variable with keys, separated by commas
KEYS_VARIABLE = "EDN_SECRET_KEYS"
_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_PREFIX_BYTES = len(_VERSION) + _ID_BYTES
_RULE = (
    f"{KEY_BYTES} bytes as {2 * KEY_BYTES} hexadecimal digits or as base64; "
    "`openssl rand -hex 32` creates one"
)


class SecretBox:
    """Seals with the first of its keys and opens with all of them. Any thread may use it."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"keys must be one or more, of {KEY_BYTES} bytes each")
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._sealing = _id_of(keys[0])
        #: beginning of every value that the first key sealed
        self.prefix = _VERSION + self._sealing
        self._fingerprinting = hashlib.sha256(b"edn fingerprint key\0" + keys[0]).digest()

    def __repr__(self) -> str:
        return f"SecretBox({', '.join(self.key_ids)})"

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Public ids of the keys; the first one seals."""
        return tuple(id.hex() for id in self._ciphers)

    def seal(self, plain: bytes, context: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._sealing].encrypt(nonce, plain, self.prefix + context.encode())
        return self.prefix + nonce + sealed

    def fingerprint(self, plain: bytes, context: str) -> bytes:
        """Returns a digest to compare secrets with; without the first key it reveals nothing about them."""
        return hmac.digest(self._fingerprinting, context.encode() + b"\0" + plain, "sha256")

    def open(self, sealed: bytes, context: str) -> bytes:
        """Returns the plain bytes of a sealed value; raises `UnreadableSecret`."""
        key = key_id(sealed)
        cipher = self._ciphers.get(bytes.fromhex(key))
        if cipher is None:
            raise UnreadableSecret(
                f"the secret {context} is sealed with key {key}, which is not among the keys of this process "
                f"({', '.join(self.key_ids)}); add it to --secret-key-file or {KEYS_VARIABLE}"
            )
        prefix, rest = sealed[:_PREFIX_BYTES], sealed[_PREFIX_BYTES:]
        try:
            return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], prefix + context.encode())
        except InvalidTag:
            raise UnreadableSecret(
                f"the secret {context} was changed or moved after it was sealed with key {key}"
            ) from None


def key_id(sealed: bytes) -> str:
    """Returns the public id of the key of a sealed value; raises `UnreadableSecret`."""
    if len(sealed) < _PREFIX_BYTES + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
        raise UnreadableSecret(
            f"a sealed secret must begin with the byte {_VERSION.hex()} and have at least "
            f"{_PREFIX_BYTES + _NONCE_BYTES + _TAG_BYTES} bytes, got {len(sealed)} bytes"
            + (f" that begin with {sealed[:1].hex()}" if sealed else "")
        )
    return sealed[len(_VERSION) : _PREFIX_BYTES].hex()


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"edn secret key id\0" + key).digest()[:_ID_BYTES]


# -- keys -----------------------------------------------------------------------------------------------


def open_box(file: Path | None, given: str, folder: Path | None) -> SecretBox:
    """Opens the box of a process; raises `CannotStart`.

    `file`: --secret-key-file; `given`: the text of EDN_SECRET_KEYS; `folder`: the data folder of a process
    without a database, which gets a key file of its own if no key is given.
    """
    if file is not None and given:
        raise CannotStart(f"--secret-key-file must not be given together with {KEYS_VARIABLE}")
    if given:
        return SecretBox(parse_keys(given.replace(",", "\n"), KEYS_VARIABLE))
    if file is None:
        if folder is None:
            raise CannotStart(
                f"--secret-key-file (or {KEYS_VARIABLE}) is required with --database: the processes of a "
                "database share sealed secrets; `openssl rand -hex 32` creates a key"
            )
        return open_folder_box(folder)
    return SecretBox(read_key_file(file))


def open_folder_box(folder: Path) -> SecretBox:
    """Opens the box of a data folder, with its own key file; creates the file if it is missing."""
    file = folder / KEY_FILE
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_key_file(file)
    return SecretBox(read_key_file(file))


def read_key_file(file: Path) -> list[bytes]:
    """Reads the keys of a file that other users must not be able to read; raises `CannotStart`."""
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            content = opened.read(1 << 16)
    except OSError as error:
        raise CannotStart(f"the secret key file {file} cannot be read: {error.strerror}") from error
    if mode & 0o007:  # a service manager may hand the file over by its group
        raise CannotStart(
            f"the secret key file {file} must not be accessible to other users, got mode {mode:04o}; "
            f"`chmod 600 {file}`"
        )
    return parse_keys(content.decode("utf-8", "replace"), str(file))


def parse_keys(text: str, place: str) -> list[bytes]:
    """Parses one key per line; empty lines and lines that begin with # are ignored."""
    keys: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _parse_key(line.strip())
        if key is None or len(key) != KEY_BYTES:
            got = "other text" if key is None else f"{len(key)} bytes"
            raise CannotStart(f"key {number} of {place} must be {_RULE}, got {got}")
        if _id_of(key) in map(_id_of, keys):
            raise CannotStart(f"key {number} of {place} must be unique, got {_id_of(key).hex()} again")
        keys.append(key)
    if not keys:
        raise CannotStart(f"{place} must have at least one key: {_RULE}")
    return keys


def _parse_key(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def create_key_file(file: Path) -> None:
    """Creates a file with a new key that only its owner can read from the beginning, and syncs it.

    Raises `CannotStart` if it cannot be written. A crash leaves no file or a complete one.
    """
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(KEY_BYTES) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the caller waits for room
        raise CannotStart(f"the secret key file {file} cannot be created: {error.strerror}") from error
