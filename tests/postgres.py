"""A PostgreSQL server for one test, from Debian's package.

It runs as an unprivileged user on a free port.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

PASSWORD = "s3cr3t-of-the-test"


def binaries() -> Path | None:
    """Return the folder that contains initdb and postgres."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return programs[-1].parent if programs else None


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server for the duration of the context, and yield its URL with the password.

    Skip the test if PostgreSQL is not installed.
    """
    bin = binaries()
    if bin is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    pytest.importorskip("psycopg2")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="sweeps-postgres-"))
    log = open(folder / "log", "w")  # noqa: SIM115 - closed below
    process = None
    try:
        (folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0:  # it refuses to be run by root
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        account = user if os.geteuid() == 0 else None
        group = pwd.getpwnam(user).pw_gid if os.geteuid() == 0 else None
        extra_groups: list[str] | None = [] if os.geteuid() == 0 else None
        data, env = folder / "data", {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        command = [
            bin / "initdb",
            "-D",
            data,
            "-U",
            "sweeps",
            "-A",
            "scram-sha-256",
            f"--pwfile={folder / 'password'}",
            "--no-sync",
        ]
        subprocess.run(
            list(map(str, command)),
            check=True,
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            timeout=60,
            user=account,
            group=group,
            extra_groups=extra_groups,
        )
        port = free_port()
        serve = [
            bin / "postgres",
            "-D",
            data,
            "-p",
            port,
            "-k",
            folder,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
        ]
        process = subprocess.Popen(
            list(map(str, serve)),
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            user=account,
            group=group,
            extra_groups=extra_groups,
        )
        ready = [str(bin / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        wait_until(
            lambda: subprocess.run(ready, stdout=log, stderr=log).returncode == 0,
            30,
            "PostgreSQL to be up",
        )
        yield f"postgresql://sweeps:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # ends open sessions
            process.wait(10)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
