"""The box that seals stored secrets, and its keys."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import UnreadableSecret
from edn.runtime.process import CannotStart
from edn.runtime.secret_box import KEY_FILE, SecretBox, create_key_file, key_id, open_box, read_key_file

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


@given(st.binary(max_size=200), st.text(max_size=40))
def test_a_sealed_value_opens_in_its_context_and_hides_its_content(plain: bytes, context: str) -> None:
    box = SecretBox([OLD])
    sealed = box.seal(plain, context)
    assert box.open(sealed, context) == plain
    assert sealed != box.seal(plain, context)
    assert len(plain) < 4 or plain not in sealed
    with pytest.raises(UnreadableSecret, match="was changed or moved"):
        box.open(sealed, context + "x")


def test_the_format_is_the_documented_one() -> None:
    sealed = SecretBox([OLD]).seal(b"whsec_x", "ring/1/current")
    plain = AESGCM(OLD).decrypt(sealed[5:17], sealed[17:], sealed[:5] + b"ring/1/current")
    assert plain == b"whsec_x"
    assert sealed[0] == 1
    assert key_id(sealed) == sealed[1:5].hex() == SecretBox([OLD]).key_ids[0]


@given(st.data())
def test_every_changed_byte_is_noticed(data: st.DataObject) -> None:
    box = SecretBox([OLD])
    sealed = bytearray(box.seal(b"secret", "place"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UnreadableSecret):
        box.open(bytes(sealed), "place")


@given(st.integers(0, 60))
def test_a_truncated_value_is_noticed(length: int) -> None:
    box = SecretBox([OLD])
    sealed = box.seal(b"secret" * 5, "place")
    with pytest.raises(UnreadableSecret):
        box.open(sealed[:length], "place")


def test_the_first_key_seals_and_all_keys_open() -> None:
    before, during, after = SecretBox([OLD]), SecretBox([NEW, OLD]), SecretBox([NEW])
    old = before.seal(b"a", "x")
    new = during.seal(b"b", "x")
    assert (during.open(old, "x"), during.open(new, "x"), after.open(new, "x")) == (b"a", b"b", b"b")
    assert new.startswith(during.prefix)
    assert not old.startswith(during.prefix)
    missing = before.key_ids[0]
    with pytest.raises(UnreadableSecret, match=f"sealed with key {missing}, which is not among the keys"):
        after.open(old, "x")


def test_a_box_does_not_print_its_keys() -> None:
    assert repr(SecretBox([NEW, OLD])) == f"SecretBox({', '.join(SecretBox([NEW, OLD]).key_ids)})"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have at least one key"),
        ("# nothing\n\n", "must have at least one key"),
        ("ab" * 31, "must be 32 bytes as 64 hexadecimal digits or as base64; .* got 31 bytes"),
        ("ab" * 33, "got 33 bytes"),
        (base64.b64encode(bytes(16)).decode(), "got 16 bytes"),
        ("not a key!", "got other text"),
        ("\xff\xfe", "got other text"),
        (f"{OLD.hex()}\n{NEW.hex()}x", "key 2 of .* got other text"),
        (f"{OLD.hex()}\n{base64.b64encode(OLD).decode()}", "key 2 of .* must be unique"),
    ],
)
def test_a_wrong_key_file_is_refused_without_showing_it(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(CannotStart, match=message) as caught:
        read_key_file(file)
    assert not content or OLD.hex() not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o601])
def test_a_key_file_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys"
    file.write_text(OLD.hex())
    file.chmod(mode)
    with pytest.raises(CannotStart, match=f"must not be accessible to other users, got mode {mode:04o}"):
        read_key_file(file)
    file.chmod(0o440)
    assert read_key_file(file) == [OLD]


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=f"{tmp_path}/absent cannot be read: No such file"):
        open_box(tmp_path / "absent", "", tmp_path)
    assert not (tmp_path / KEY_FILE).exists()


def test_keys_come_from_a_file_or_the_environment_but_not_from_both(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of 2026\n{NEW.hex()}\n\n{base64.b64encode(OLD).decode()}\n")
    file.chmod(0o600)
    both = SecretBox([NEW, OLD]).key_ids
    assert open_box(file, "", None).key_ids == both
    assert open_box(None, f"{NEW.hex()},{OLD.hex()}", None).key_ids == both
    with pytest.raises(CannotStart, match="must not be given together with EDN_SECRET_KEYS"):
        open_box(file, NEW.hex(), None)


def test_a_process_with_a_data_folder_creates_its_key_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = open_box(None, "", tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert open_box(None, "", tmp_path).key_ids == first.key_ids
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]


def test_a_file_left_by_a_crash_during_the_creation_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{KEY_FILE}.new").write_text("half")
    create_key_file(tmp_path / KEY_FILE)
    assert len(read_key_file(tmp_path / KEY_FILE)) == 1
    with pytest.raises(CannotStart, match="cannot be created: No such file"):
        create_key_file(tmp_path / "absent" / KEY_FILE)


def test_a_process_with_a_database_needs_a_key() -> None:
    with pytest.raises(CannotStart, match=r"EDN_SECRET_KEYS\) is required with --database"):
        open_box(None, "", None)


def test_a_fingerprint_tells_secrets_apart_and_depends_on_the_first_key() -> None:
    box, rotated = SecretBox([OLD]), SecretBox([NEW, OLD])
    assert box.fingerprint(b"a", "x") == SecretBox([OLD, NEW]).fingerprint(b"a", "x")
    others = [box.fingerprint(b"b", "x"), box.fingerprint(b"a", "y"), rotated.fingerprint(b"a", "x")]
    assert len({box.fingerprint(b"a", "x"), *others}) == 4
