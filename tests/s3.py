"""An S3 server in this process, which can fail on demand; and a folder in place of a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from pyarrow import fs

from sweeps.core.files.stores import Store

KEY, SECRET = "AKIATESTS0000000000", "the-secret-of-the-tests-7Qz"


class Storage:
    """moto's S3 server with one bucket, `bucket`.

    Attributes:
        down: True to answer every request with 503, as S3 does when it is not available.
        answers: Number of requests that are answered before the storage is down; see `failing`.
        refused: Number of requests that were answered with 503.
        environment: Environment variables with which a process reaches the server.
    """

    address = "s3://bucket"

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            def log(self, *arguments: Any) -> None:
                pass

        self.down = False
        self.answers: int | None = None
        self.refused = 0
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet
        )
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def failing(self, after: int = 0) -> Iterator[None]:
        """Context manager in which the storage fails after it has answered some requests."""
        self.answers = after
        try:
            yield
        finally:
            self.answers = None
            self.down = False

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self.answers is not None:
            self.answers -= 1
            self.down = self.answers < 0
        if self.down:
            self.refused += 1
            start_response("503 Slow Down", [("Content-Length", "0"), ("Connection", "close")])
            return [b""]
        return self._app(environ, start_response)

    @property
    def _bucket(self) -> Any:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets["bucket"]

    def files(self) -> dict[str, bytes]:
        """Return the content of every object, by its key. Markers of folders are left out."""
        return {
            key: value.value
            for key, value in list(self._bucket.keys.items())
            if not key.endswith("/")
        }

    def put(self, key: str, value: bytes | Path) -> None:
        """Store an object."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(
            "bucket", key, value.read_bytes() if isinstance(value, Path) else value
        )

    def age(self, key: str, seconds: float) -> None:
        """Make an object older."""
        self._bucket.keys[key].last_modified -= timedelta(seconds=seconds)

    def delete(self, key: str) -> None:
        """Delete an object."""
        del self._bucket.keys[key]

    def close(self) -> None:
        """Stop the server and forget its objects."""
        from moto.s3.models import s3_backends

        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        s3_backends.reset()


@contextmanager
def storage() -> Iterator[Storage]:
    """Start a server with the bucket `bucket`, and set the environment variables of this process so
    that it is used.
    """
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    server = Storage()
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket("bucket", "us-east-1")
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        yield server
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        server.close()


def folder_as_bucket(
    folder: Path, modules: Iterable[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Create a folder, and let modules open it in place of the bucket `s3://bucket`.

    Return the folder.
    """
    folder.mkdir()

    def opened(address: str, patient: bool = True) -> Store:
        name = address.removeprefix("s3://bucket").strip("/")
        return Store(fs.LocalFileSystem(), str(folder / name) if name else str(folder), address)

    for module in modules:
        monkeypatch.setattr(module, "open_store", opened)
    return folder
