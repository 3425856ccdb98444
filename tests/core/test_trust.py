"""The key of this user, and the MAC that a pickle of a sweep's folder carries."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.files import trust


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A configuration folder without a key."""
    monkeypatch.delenv(trust.KEY_FILE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "sweeps"


@pytest.fixture
def signed(home: Any, tmp_path: Path) -> Any:
    file = tmp_path / "preprocessor-1.pkl"
    file.write_bytes(b"bytes")
    trust.sign(file)
    return file


def test_a_signed_file_is_read_and_the_key_is_this_users_alone(signed: Any, home: Any) -> None:
    assert trust.read(signed) == b"bytes"
    assert (
        stat.S_IMODE((home / "key").stat().st_mode) == 0o600
        and stat.S_IMODE(home.stat().st_mode) == 0o700
    )
    assert [path.name for path in home.iterdir()] == ["key"]


def test_a_signature_that_is_a_link_is_replaced(signed: Any, tmp_path: Path) -> None:
    signature, elsewhere = signed.with_name(signed.name + trust.SUFFIX), tmp_path / "elsewhere"
    elsewhere.write_bytes(signature.read_bytes())
    signature.unlink()
    signature.symlink_to(elsewhere)
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)
    before = elsewhere.read_bytes()
    signed.write_bytes(b"other bytes")
    trust.sign(signed)
    assert elsewhere.read_bytes() == before and trust.read(signed) == b"other bytes"


def test_the_key_is_created_once(home: Any) -> None:
    assert trust.key() is None
    keys: list[bytes | None] = []
    threads = [threading.Thread(target=lambda: keys.append(trust.key(make=True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == len(threads)
    (key,) = set(keys)
    assert key is not None and len(key) >= 32 and trust.key() == key


def test_changed_renamed_or_unsigned_file_needs_trust(signed: Any, tmp_path: Path) -> None:
    other = tmp_path / "preprocessor-2.pkl"
    other.write_bytes(signed.read_bytes())
    with pytest.raises(trust.UntrustedFile, match="--trust"):
        trust.read(other)
    other.with_name(other.name + trust.SUFFIX).write_bytes(
        signed.with_name(signed.name + trust.SUFFIX).read_bytes()
    )
    with pytest.raises(trust.UntrustedFile, match=r"preprocessor-2\.pkl"):
        trust.read(other)
    assert trust.read(other, trust=True) == b"bytes"
    signed.write_bytes(b"others")
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"0" * 64, "ä".encode() * 32])
def test_a_mac_that_is_none_is_refused_in_the_same_way(signed: Any, text: Any) -> None:
    signed.with_name(signed.name + trust.SUFFIX).write_bytes(text)
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)


def test_without_a_key_nothing_is_trusted(signed: Any, home: Any) -> None:
    (home / "key").unlink()
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)
    assert not (home / "key").exists()


def test_another_key_may_be_named(
    signed: Any, home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team").write_text("a key of the team's, long enough\n")
    monkeypatch.setenv(trust.KEY_FILE, str(tmp_path / "team"))
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)
    trust.sign(signed)
    assert trust.read(signed) == b"bytes"
    monkeypatch.delenv(trust.KEY_FILE)
    with pytest.raises(trust.UntrustedFile):
        trust.read(signed)


def test_a_named_key_that_will_not_do_is_refused_with_its_place(
    signed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    monkeypatch.setenv(trust.KEY_FILE, str(named))
    for text, said in ((None, "does not exist"), ("short", "at least 16")):
        if text is not None:
            named.write_text(text)
        with pytest.raises(InputError, match=said) as refused:
            trust.sign(signed)
        assert refused.value.problems[0].place == trust.KEY_FILE
    named.unlink()
    assert not named.exists(), "a key that is named is never made"


def test_files_of_a_folder_are_refused_if_one_of_them_is_not_signed(
    signed: Any, tmp_path: Path
) -> None:
    names = (signed.name, "missing.pkl")
    trust.refuse_unsigned(tmp_path, names, trust=False)
    (tmp_path / "missing.pkl").write_bytes(b"a stranger's")
    with pytest.raises(trust.UntrustedFile, match=r"missing\.pkl: has no signature"):
        trust.refuse_unsigned(tmp_path, names, trust=False)
    trust.refuse_unsigned(tmp_path, names, trust=True)
