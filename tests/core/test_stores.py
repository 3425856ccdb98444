"""Addresses and errors of stores. `test_store_conformance.py` tests the files in a store."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sweeps.core.errors import InputError, StoreError
from sweeps.core.files import checkpoint_files, stores
from sweeps.core.files.stores import Store
from sweeps.core.files.sweep_folder import SweepFolder


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return Store(fs.LocalFileSystem(), str(tmp_path / "bucket"), "s3://bucket")


class Flaky:
    """A file system whose requests fail with the given errors, one after the other."""

    def __init__(self, *errors: Any) -> None:
        self.errors = list(errors)

    def get_file_info(self, selector: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return []


def test_an_error_of_the_storage_has_one_line() -> None:
    error = OSError("When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2: no\nentry")
    with pytest.raises(StoreError) as caught:
        Store(Flaky(error), "bucket", "s3://bucket").files("trials")
    text = (
        "s3://bucket/trials cannot be listed: AWS Error ACCESS_DENIED during ListObjectsV2: no "
        "entry"
    )
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value))) == text


def test_workers_need_only_the_variables_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in stores.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert stores.needed_environment() == {}
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("PATH_OF_NOTHING", "x")
    assert stores.needed_environment() == {"AWS_REGION": "eu-west-1"}


def test_the_options_come_from_the_usual_environment_variables() -> None:
    assert stores.s3_options({}) == {}
    assert stores.s3_options({"AWS_ENDPOINT_URL": "http://localhost:9000/"}) == {
        "scheme": "http",
        "endpoint_override": "localhost:9000",
        "region": "us-east-1",
    }
    both = {
        "AWS_ENDPOINT_URL": "http://a",
        "AWS_ENDPOINT_URL_S3": "https://b",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    assert stores.s3_options(both) == {
        "scheme": "https",
        "endpoint_override": "b",
        "region": "eu-west-1",
    }
    keys = {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "r",
    }
    assert stores.s3_options(keys) == {
        "access_key": "k",
        "secret_key": "s",
        "session_token": "t",
        "region": "r",
    }


@pytest.mark.parametrize(
    "address", ["s3://bucket", "s3://bucket/a/b_c.d", "s3://my-bucket.eu/sweeps/"]
)
def test_addresses(address: str) -> None:
    assert stores.check_address(address, "--dir") == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "s3://",
        "s3://B/x",
        "s3://KEY:hunter2@bucket/x",
        "s3://bucket/x?endpoint_override=h",
        "s3://bucket/../x",
    ],
)
def test_other_addresses_are_refused_without_their_secrets(address: str) -> None:
    with pytest.raises(InputError, match="must be s3://BUCKET/PREFIX") as caught:
        stores.check_address(address, "--dir")
    assert "hunter2" not in str(caught.value)


def test_a_store_that_only_a_folder_names_is_not_used(tmp_path: Path) -> None:
    assert stores.store_of(tmp_path) is None and stores.recorded_store(tmp_path) is None
    SweepFolder(tmp_path).origin.write_text(json.dumps({"store": "s3://stranger/churn"}))
    assert stores.recorded_store(tmp_path) == "s3://stranger/churn"
    with pytest.raises(
        InputError, match="this sweep is stored in s3://stranger/churn; give this address"
    ):
        stores.store_of(tmp_path)
    with pytest.raises(InputError):
        checkpoint_files.checkpoint_root(tmp_path, "0003")
    stores.allow("s3://stranger/churn-2")
    with pytest.raises(InputError):
        stores.store_of(tmp_path)
    stores.allow("s3://stranger/churn")
    assert stores.store_of(tmp_path) == "s3://stranger/churn"
    assert checkpoint_files.checkpoint_root(tmp_path, "0003") == "s3://stranger/churn/trials/0003"


def test_a_failed_trial_ends_the_sweep_only_if_the_storage_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Any
) -> None:
    stores.check_store(tmp_path, "sweeps.core.files.stores.StoreError: without a store")
    SweepFolder(tmp_path).origin.write_text(json.dumps({"store": "s3://bucket/churn"}))
    stores.allow("s3://bucket/churn")
    monkeypatch.setattr(stores, "open_store", lambda address, patient: store)
    stores.check_store(tmp_path, "ZeroDivisionError: the user's own mistake")
    with pytest.raises(StoreError, match=r"^s3://bucket/x cannot be written: no$"):
        stores.check_store(
            tmp_path,
            "Traceback\nsweeps.core.stores.StoreError: s3://bucket/x cannot be written: no\n",
        )
