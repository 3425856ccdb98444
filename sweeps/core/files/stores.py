"""Store files in S3-compatible storage.

The files are the data that a sweep reads, and the checkpoints, reports and bundles that it writes.

This module reaches the files through `pyarrow.fs`, as Ray does. The other modules use only names
and local paths. The endpoint and the credentials come from the usual environment variables
(`ENVIRONMENT`) and are never written to a file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sweeps.core.errors import InputError, StoreError
from sweeps.core.text.secrets import is_secret_variable, remember_variables

from .sweep_folder import SweepFolder

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

SCHEME = "s3://"
# Most times that a request is sent, if the storage does not answer. Arrow waits longer and longer
# between two tries; all together take about a minute.
ATTEMPTS = 8
# Bytes that are read from a local file at once.
CHUNK = 2**20
# The file in a sweep's store that says which process runs the sweep.
DRIVER = "driver.json"
# Environment variables that workers on other nodes need to reach the storage.
ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CA_BUNDLE",
)
_ADDRESS = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-][A-Za-z0-9!_.*'()=+ -]*)*/?"
)
# Stores that the user has named in a command of this process; see `allow`.
_allowed: set[str] = set()


class Store:
    """Files below one address, such as `s3://bucket/sweeps/churn-20260102-120000`.

    Names are relative to the address, with slashes. A missing file is a `FileNotFoundError`. If the
    storage does not answer, or refuses a request, methods raise a `StoreError`.

    Args:
        system: The file system of Arrow.
        root: Folder in the file system, such as `bucket/sweeps`.
        address: The address.
    """

    def __init__(self, system: FileSystem, root: str, address: str):
        self.system = system
        self.root = root.rstrip("/")
        self.address = address.rstrip("/")

    def _path(self, *names: str) -> str:
        return "/".join(name for name in (self.root, *names) if name)

    def put(self, source: Path, name: str = "") -> None:
        """Copy a local file, or all files of a local folder, to the store.

        A file appears only when it is complete. A source that does not exist is ignored.
        """
        files = [path for path in (source, *sorted(source.rglob("*"))) if path.is_file()]
        for file in files:
            target = self._path(name, *file.relative_to(source).parts)
            self._make_parent(target)
            # Not `pyarrow.fs.copy_files`, which ignores errors after the first part of an upload.
            with (
                self._request("written", name),
                file.open("rb") as content,
                self.system.open_output_stream(target) as stream,
            ):
                shutil.copyfileobj(content, stream, CHUNK)

    def get(self, name: str, target: Path) -> None:
        """Copy a file to a local file, or all files below a name to a local folder."""
        from pyarrow import fs

        inside = [""] if self.file(name) else list(self.files(name))
        if not inside:
            raise FileNotFoundError(f"{self.address}/{name} does not exist")
        for relative in inside:
            if ".." in PurePosixPath(relative).parts or relative.startswith("/"):
                raise StoreError(
                    f"{self.address}/{name}/{relative} has a name that leads out of its folder; "
                    "delete this object"
                )
            local = target / relative
            local.parent.mkdir(parents=True, exist_ok=True)
            with self._request("read", name):
                fs.copy_files(
                    self._path(name, relative),
                    str(local),
                    source_filesystem=self.system,
                    destination_filesystem=fs.LocalFileSystem(),
                    use_threads=False,
                )

    def file(self, name: str) -> FileInfo | None:
        """Return the size and the time of a file. Return None if there is no file of this name."""
        with self._request("read", name):
            info = self.system.get_file_info(self._path(name))
        return info if info.is_file else None

    def files(self, name: str = "") -> dict[str, int]:
        """Return the size in bytes of each file below a name, by its name relative to this name.

        Return {} if there are none.
        """
        from pyarrow import fs

        root = self._path(name)
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        try:
            with self._request("listed", name):
                infos = self.system.get_file_info(selector)
        except NotADirectoryError:
            return {}
        return {file.path.removeprefix(f"{root}/"): file.size for file in infos if file.is_file}

    def copy_to(self, target: Store) -> None:
        """Copy all files to another address, inside the storage."""
        files = self.files()
        if not files:
            raise FileNotFoundError(f"{self.address} does not exist")
        for name in files:
            self._make_parent(target._path(name))
            with self._request("copied", name):
                self.system.copy_file(self._path(name), target._path(name))

    def delete(self, name: str = "") -> None:
        """Delete a file, or all files below a name. Do nothing if there are none."""
        from pyarrow import fs

        # Another thread may delete the files meanwhile.
        with contextlib.suppress(FileNotFoundError), self._request("deleted", name):
            info = self.system.get_file_info(self._path(name))
            if info.type == fs.FileType.File:
                self.system.delete_file(info.path)
            elif info.type == fs.FileType.Directory:
                self.system.delete_dir(info.path)

    def _make_parent(self, path: str) -> None:
        """Make the folder of a file, if the file system has folders. Buckets have none."""
        from pyarrow import fs

        if not isinstance(self.system, fs.S3FileSystem):
            self.system.create_dir(str(PurePosixPath(path).parent))

    @contextlib.contextmanager
    def _request(self, verb: str, name: str) -> Iterator[None]:
        """Send requests in a `with` block.

        Raises:
            StoreError: The storage does not answer, or refuses a request.
        """
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as e:
            place = f"{self.address}/{name}".rstrip("/")
            raise StoreError(f"{place} cannot be {verb}: {reason_of(e)}") from e


def reason_of(error: BaseException) -> str:
    """Return the part of an error of Arrow that says what the storage has reported."""
    text = " ".join(str(error).split())
    return text[text.find("AWS Error") :] if "AWS Error" in text else text


# ---- addresses


def is_address(text: object) -> bool:
    """Return whether a text is meant as the address of a store: whether it begins with `s3://`."""
    return str(text).startswith(SCHEME)


def check_address(address: str, place: str) -> str:
    """Return the address of a store without a slash at the end.

    Raises:
        InputError: The address is not `s3://BUCKET/PREFIX`. A key or a query in the address is
            refused, because an address is recorded.
    """
    if not _ADDRESS.fullmatch(address) or any(part in (".", "..") for part in address.split("/")):
        rule = (
            "must be s3://BUCKET/PREFIX; the endpoint and the keys come from AWS_ENDPOINT_URL, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise InputError(place, f"`{address}` {rule}")
    return address.rstrip("/")


def filesystem(bucket: str, attempts: int = ATTEMPTS) -> FileSystem:
    """Return Arrow's file system for a bucket.

    It has the endpoint and the credentials of this process's environment variables. The credentials
    are part of the object, so they are also known where Ray Data's tasks use a copy of the object.
    """
    options = s3_options(os.environ)
    if "region" not in options:
        options["region"] = _region(bucket)
    return _filesystem(tuple(sorted(options.items())), attempts)


def s3_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments of `pyarrow.fs.S3FileSystem` for environment variables.

    >>> s3_options({"AWS_ENDPOINT_URL": "http://localhost:9000"})
    {'scheme': 'http', 'endpoint_override': 'localhost:9000', 'region': 'us-east-1'}
    """
    options: dict[str, str] = {}
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        scheme, separator, host = endpoint.partition("://")
        options |= {
            "scheme": scheme if separator else "https",
            "endpoint_override": (host if separator else endpoint).rstrip("/"),
        }
    key = environment.get("AWS_ACCESS_KEY_ID")
    secret = environment.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        options |= {"access_key": key, "secret_key": secret}
        if token := environment.get("AWS_SESSION_TOKEN"):
            options["session_token"] = token
    region = (
        environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or ("us-east-1" if endpoint else None)
    )
    if region:
        options["region"] = region
    if bundle := environment.get("AWS_CA_BUNDLE"):
        options["tls_ca_file_path"] = bundle
    return options


@functools.cache
def _region(bucket: str) -> str:
    """Ask AWS for the region of a bucket."""
    from pyarrow import fs

    region: str = fs.resolve_s3_region(bucket)
    return region


@functools.cache
def _filesystem(options: tuple[tuple[str, str], ...], attempts: int) -> FileSystem:
    """Make a file system, or return the one that was made for the same arguments.

    `options` has the names and values in the result of `s3_options`.
    """
    from pyarrow import fs

    retries = fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    return fs.S3FileSystem(**dict(options), retry_strategy=retries)


def open_store(address: str, patient: bool = True) -> Store:
    """Return the store at an address.

    This function sends no request, unless the region of the bucket is unknown.

    Args:
        address: The address.
        patient: False to send a request only once, if the storage does not answer.

    Raises:
        StoreError: The region of the bucket is unknown, and AWS does not tell it.
    """
    root = address.removeprefix(SCHEME)
    try:
        attempts = ATTEMPTS if patient else 1
        return Store(filesystem(root.partition("/")[0], attempts), root, address)
    except OSError as e:
        raise StoreError(
            f"{address} cannot be reached; set AWS_REGION or AWS_ENDPOINT_URL: {reason_of(e)}"
        ) from e


def needed_environment() -> dict[str, str]:
    """Return the environment variables that workers on other nodes need to reach the storage.

    The values are those of this process.
    """
    remember_variables(name for name in ENVIRONMENT if is_secret_variable(name, ""))
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


# ---- the store of a sweep


def allow(address: str) -> None:
    """Allow this process to use the store at an address, because the user has named the address."""
    _allowed.add(address)


def recorded_store(folder: Path) -> str | None:
    """Return the address of the store that a sweep's folder names.

    Return None if the sweep is stored on disks only.
    """
    file = SweepFolder(folder).origin
    try:
        return _recorded(file, file.stat().st_mtime_ns)
    except OSError:
        return None


@functools.lru_cache(maxsize=64)
def _recorded(file: Path, changed: int) -> str | None:
    """Return the address of the store that an `origin.json` names; None if it names none.

    Args:
        file: The file.
        changed: When the file was changed. The cache reads a changed file again.
    """
    from .json_files import read_json_object  # imports pydantic, which takes a while

    address = (read_json_object(file) or {}).get("store")
    return address if isinstance(address, str) and address else None


def store_of(folder: Path) -> str | None:
    """Return the address of a sweep's store; None if the sweep is stored on disks only.

    A sweep's folder may come from a stranger. A store that it names is therefore used only if the
    user has named the store too.

    Raises:
        InputError: The folder names a store that the user has not named.
    """
    if (address := recorded_store(folder)) is None:
        return None
    if not any(address == allowed or address.startswith(f"{allowed}/") for allowed in _allowed):
        raise InputError(
            str(folder),
            f"this sweep is stored in {address}; give this address in place of the folder",
        )
    return address


def check_store(folder: Path, error: str) -> None:
    """Raise an error if a trial failed because the sweep's store does not answer.

    Do nothing if the sweep has no store.

    Args:
        folder: The sweep's folder.
        error: Traceback of the failed trial.

    Raises:
        StoreError: The traceback has the text of a `StoreError`, or the storage does not answer
            now.
    """
    if (address := store_of(folder)) is None:
        return
    if match := re.search(r"s3://\S+ cannot be (?:written|read|listed|copied|deleted)\b.*", error):
        raise StoreError(match[0])
    open_store(address, patient=False).files(DRIVER)


def unreachable_from_here(address: str, secrets: Mapping[str, str]) -> str | None:
    """Return why this process cannot list a store; None if it can.

    Nodes of a cluster run this function as a task.

    Args:
        address: The address of the store.
        secrets: Environment variables with which the storage is reached.
    """
    os.environ.update(secrets)
    try:
        open_store(address, patient=False).files(DRIVER)
    except StoreError as e:
        return str(e)
    return None
