"""Store files in S3-compatible storage: the data that a sweep reads, and the checkpoints, reports and bundles that it writes.

`Store` is the port. `ArrowStore` is its only implementation; it uses `pyarrow.fs`, as Ray does. The
other modules see names and local paths. The endpoint and the credentials come from the usual
environment variables (`ENVIRONMENT`) and are never written to a file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from sweeps.core.errors import InputError, StoreError
from sweeps.core.secrets import is_secret_variable, remember_variables
from sweeps.core.sweep_folder import SweepFolder

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

T = TypeVar("T")

SCHEME = "s3://"
# For this many seconds, a failed request is tried again.
TIMEOUT = "SWEEPS_STORE_TIMEOUT"
DEFAULT_TIMEOUT = 60.0
# Time limit in seconds for the question whether the storage answers.
ANSWERS_WITHIN = 5.0
# The file in a sweep's store that says which process runs the sweep.
DRIVER = "driver.json"
# Longest pause between two tries, in seconds.
LONGEST_PAUSE = 5.0
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
    TIMEOUT,
)
# Parts of Arrow's messages about errors that another try does not remove.
_FINAL = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "NO_SUCH_BUCKET",
    "INVALID_CLIENT_TOKEN_ID",
    "HTTP status 403",
)
_ADDRESS = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-][A-Za-z0-9!_.*'()=+ -]*)*/?"
)
# Stores that the user has named in a command of this process; see `allow`.
_allowed: set[str] = set()


class StoredFile(NamedTuple):
    """A file in a store.

    Attributes:
        size: Size in bytes.
        time: Time of the last change by the clock of the storage, in seconds since the epoch.
    """

    size: int
    time: float

    @classmethod
    def of(cls, info: FileInfo) -> Self:
        """Return the file that Arrow describes."""
        return cls(info.size or 0, (info.mtime_ns or 0) / 1e9)


class Store(Protocol):
    """Files below one address, such as `s3://bucket/sweeps/churn-20260102-120000`.

    Names are relative to the address, with slashes. A missing file is a `FileNotFoundError`. If the
    storage does not answer for a minute, or refuses a request, methods raise a `StoreError`.

    Attributes:
        address: The address, without a slash at the end.
    """

    @property
    def address(self) -> str: ...  # noqa: D102

    def put(self, source: Path, name: str) -> None:
        """Copy a local file, or all files of a local folder, to the store.

        A file appears only when it is complete.
        """

    def get(self, name: str, target: Path) -> None:
        """Copy a file of the store to a local file, or all files below a name to a local folder."""

    def file(self, name: str) -> StoredFile | None:
        """Return a file. Return None if there is no file of this name."""

    def files(self, name: str = "") -> dict[str, StoredFile]:
        """Return all files below a name, by their names relative to it. {} if there are none."""

    def copy(self, source: str, target: str) -> None:
        """Copy all files below a name to another name, inside the storage."""

    def delete(self, name: str) -> None:
        """Delete a file, or all files below a name. Do nothing if there are none."""


class ArrowStore:
    """A store in a file system of Arrow; see `Store`.

    Args:
        system: The file system.
        root: Folder in the file system, such as `bucket/sweeps`.
        address: The address for messages.
        within: For this many seconds, a failed request is tried again. None for the number in
            `SWEEPS_STORE_TIMEOUT`, or 60.
    """

    def __init__(self, system: FileSystem, root: str, address: str, within: float | None = None):
        self.system, self.root, self.address = system, root.rstrip("/"), address.rstrip("/")
        self.within = within

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def put(self, source: Path, name: str) -> None:
        """See `Store`."""
        from pyarrow import fs

        local = fs.LocalFileSystem()
        for file in (
            [source]
            if source.is_file()
            else sorted(path for path in source.rglob("*") if path.is_file())
        ):
            target = self._path(
                name if file == source else f"{name}/{file.relative_to(source).as_posix()}"
            )
            self._make_parent(target)
            copy = functools.partial(
                fs.copy_files,
                str(file),
                target,
                source_filesystem=local,
                destination_filesystem=self.system,
                use_threads=False,
            )
            self._retried("written", name, copy)

    def get(self, name: str, target: Path) -> None:
        """See `Store`."""
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
            local = target / relative if relative else target
            local.parent.mkdir(parents=True, exist_ok=True)
            source = self._path(f"{name}/{relative}".strip("/") if relative else name)
            copy = functools.partial(
                fs.copy_files,
                source,
                str(local),
                source_filesystem=self.system,
                destination_filesystem=fs.LocalFileSystem(),
                use_threads=False,
            )
            self._retried("read", name, copy)

    def file(self, name: str) -> StoredFile | None:
        """See `Store`."""
        found = self._retried("read", name, lambda: self.system.get_file_info(self._path(name)))
        return StoredFile.of(found) if found.is_file else None

    def files(self, name: str = "") -> dict[str, StoredFile]:
        """See `Store`."""
        from pyarrow import fs

        root = self._path(name)
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        try:
            found = self._retried("listed", name, lambda: self.system.get_file_info(selector))
        except NotADirectoryError:
            return {}
        return {f.path.removeprefix(f"{root}/"): StoredFile.of(f) for f in found if f.is_file}

    def copy(self, source: str, target: str) -> None:
        """See `Store`."""
        files = self.files(source)
        if not files:
            raise FileNotFoundError(f"{self.address}/{source} does not exist")
        for relative in files:
            old, new = self._path(f"{source}/{relative}"), self._path(f"{target}/{relative}")
            self._make_parent(new)
            self._retried("copied", source, functools.partial(self.system.copy_file, old, new))

    def delete(self, name: str) -> None:
        """See `Store`."""
        from pyarrow import fs

        def remove() -> None:
            info = self.system.get_file_info(self._path(name))
            if info.type == fs.FileType.File:
                self.system.delete_file(info.path)
            elif info.type == fs.FileType.Directory:
                self.system.delete_dir(info.path)

        with contextlib.suppress(FileNotFoundError):  # Another thread has deleted it meanwhile.
            self._retried("deleted", name, remove)

    def _make_parent(self, path: str) -> None:
        """Make the folder of a file, if the file system has folders. Buckets have none."""
        from pyarrow import fs

        if not isinstance(self.system, fs.S3FileSystem):
            self.system.create_dir(str(PurePosixPath(path).parent))

    def _retried(self, verb: str, name: str, request: Callable[[], T]) -> T:
        """Call a function that sends a request.

        Call the function again after errors that may go away.

        Raises:
            StoreError: The storage does not answer within the time limit, or refuses the request.
        """
        limit, pause = timeout() if self.within is None else self.within, 0.25
        until = time.monotonic() + limit
        while True:
            try:
                return request()
            except (FileNotFoundError, NotADirectoryError):
                raise
            except OSError as e:
                if is_final(e) or time.monotonic() + pause > until:
                    waited = "" if is_final(e) or not limit else f" after {limit:.0f} s of tries"
                    raise StoreError(
                        f"{self.address}{name and '/'}{name} cannot be {verb}{waited}: "
                        f"{reason_of(e)}"
                    ) from e
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def timeout() -> float:
    """Return for how many seconds a failed request is tried again."""
    try:
        return max(0.0, float(os.environ.get(TIMEOUT, DEFAULT_TIMEOUT)))
    except ValueError:
        return DEFAULT_TIMEOUT


def is_final(error: BaseException) -> bool:
    """Return whether the storage refused a request, so that the same request would be refused again."""
    return isinstance(error, PermissionError) or any(text in str(error) for text in _FINAL)


def reason_of(error: BaseException) -> str:
    """Return the part of one of Arrow's messages that says what the storage, or the connection to the storage, reported."""
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


def filesystem(bucket: str) -> FileSystem:
    """Return Arrow's file system for a bucket, with the endpoint and the credentials of this process's environment variables.

    The credentials are part of the object, so they are also known where Ray Data's tasks use a copy
    of the object.
    """
    options = s3_options(os.environ)
    if "region" not in options:
        options["region"] = _region(bucket)
    return _filesystem(tuple(sorted(options.items())))


def s3_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.S3FileSystem` for environment variables.

    >>> s3_options({"AWS_ENDPOINT_URL": "http://localhost:9000"})
    {'scheme': 'http', 'endpoint_override': 'localhost:9000', 'region': 'us-east-1'}
    """
    options: dict[str, Any] = {}
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        scheme, separator, host = endpoint.partition("://")
        options |= {
            "scheme": scheme if separator else "https",
            "endpoint_override": (host if separator else endpoint).rstrip("/"),
        }
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
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
def _filesystem(options: tuple[tuple[str, Any], ...]) -> FileSystem:
    from pyarrow import fs

    return fs.S3FileSystem(**dict(options))


def open_store(address: str, within: float | None = None) -> Store:
    """Return the store at an address.

    This function sends no request, unless the region of the bucket is unknown.

    Args:
        address: The address.
        within: See `ArrowStore`.

    Raises:
        StoreError: The region of the bucket is unknown, and AWS does not tell it.
    """
    root = address.removeprefix(SCHEME)
    try:
        return ArrowStore(filesystem(root.partition("/")[0]), root, address, within)
    except OSError as e:
        raise StoreError(
            f"{address} cannot be reached; set AWS_REGION or AWS_ENDPOINT_URL: {reason_of(e)}"
        ) from e


def needed_environment() -> dict[str, str]:
    """Return the environment variables of this process that workers on other nodes need to reach the storage."""
    remember_variables(name for name in ENVIRONMENT if is_secret_variable(name, ""))
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


# ---- the store of a sweep


def allow(address: str) -> None:
    """Allow this process to use the store at an address, because the user has named the address."""
    _allowed.add(address)


def recorded_store(folder: Path) -> str | None:
    """Return the address of the store that a sweep's folder names; None if the sweep is stored on disks only."""
    file = SweepFolder(folder).origin
    try:
        return _recorded(file, file.stat().st_mtime_ns)
    except OSError:
        return None


@functools.lru_cache(maxsize=64)
def _recorded(file: Path, changed: int) -> str | None:
    from sweeps.core.json_files import read_json_object  # imports pydantic, which takes a while

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
    if found := re.search(r"s3://\S+ cannot be (?:written|read|listed|copied|deleted)\b.*", error):
        raise StoreError(found[0])
    open_store(address, within=ANSWERS_WITHIN).files(DRIVER)


def unreachable_from_here(address: str, secrets: Mapping[str, str]) -> str | None:
    """Return why this process cannot list a store; None if it can.

    Nodes of a cluster run this function as a task.

    Args:
        address: The address of the store.
        secrets: Environment variables with which the storage is reached.
    """
    os.environ.update(secrets)
    try:
        open_store(address, within=ANSWERS_WITHIN).files(DRIVER)
    except StoreError as e:
        return str(e)
    return None
