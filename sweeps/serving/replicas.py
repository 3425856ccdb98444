"""`sweeps serve --replicas`: the same application under Ray Serve, on a Ray of its own or on a cluster, until SIGTERM or Ctrl-C.

What is in flight is answered first. Ray Serve starts a replica anew that has died.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweeps.bundle import integrity, load_bundle
from sweeps.core import logging_setup
from sweeps.core.errors import BundleError, InputError, Problem
from sweeps.core.installed_package import install
from sweeps.execution import cluster
from sweeps.serving.access import Access
from sweeps.serving.limits import DRAIN_SECONDS, KEEP_ALIVE_SECONDS, Limits
from sweeps.serving.server import listening, url_of, warn_of_strangers

APP = "sweeps"
START_SECONDS = 120.0
LOOK_EVERY = 0.2
# Requests that Serve gives a replica at once: what arrives while the model works must be there to be answered together.
MAX_ONGOING = 1000
# As `ray.util.list_named_actors` has Serve's own.
SERVE_NAMESPACE = "serve"


class Replica:
    """What each replica runs: the application, around a bundle that it has loaded."""

    def __init__(self, bundle: str, limits: Limits, access: Access):
        from ray import serve

        from sweeps.serving.app import make_app

        name = serve.get_replica_context().replica_id.unique_id
        self.made = make_app(load_bundle(bundle), limits, access, name)

    def __serve_build_asgi_app__(self) -> Any:
        """For `serve.ingress`."""
        return self.made


def serve(
    bundle: Path,
    host: str,
    port: int,
    say: Callable[[str], None],
    limits: Limits,
    access: Access,
    replicas: int,
    address: str | None,
) -> None:
    """Serve a bundle by several processes, under Ray Serve.

    Args:
        bundle: its folder; on a cluster, one that every node sees.
        host, port: to listen on, on a cluster at its head node; port 0 for any free one of this machine.
        say: prints where it listens, once it does.
        limits: of a request.
        access: who may ask.
        replicas: processes that answer, each on a CPU.
        address: of a cluster; without one, a Ray of its own.

    Raises:
        InputError: no bundle, no address to listen on, no such cluster, one that is too small, whose nodes do not see the bundle or on
            which Ray Serve runs already, or the extra `serve` is not installed.
        BundleError: the bundle is broken, or no replica can load it.
    """
    if address and port == 0:
        raise InputError(Problem("--port", "0: with --address it must be a port that is free on the cluster's head node"))
    logging_setup.set_environment()
    if address:
        cluster.prepare_authentication(address)
    try:
        import ray.serve

        from sweeps.serving.app import require_columns
    except ImportError as e:
        raise InputError(Problem("--replicas", f"needs the package `{e.name}`: {install('serve')}")) from None
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    folder = bundle.resolve()
    require_columns(load_bundle(folder))  # what is wrong with it is said here, before anything is started
    warn_of_strangers(host, access, say)
    if address is None:
        with listening(host, port) as listener:
            port = listener.getsockname()[1]

    with _ray(address, replicas):
        if address:
            _check(folder, replicas)
        over = threading.Event()
        with _told(over):
            try:
                _deploy(folder, host, port, limits, access, replicas)
                if _runs(bundle, replicas, over):
                    by = f"{replicas} replica{'s' if replicas > 1 else ''}"
                    at = url_of(host, port) + (" of the head node" if address else "")
                    say(f"serving {bundle} at {at} by {by} (/predict, /schema, /health, /metrics, /docs); Ctrl-C ends it")
                    over.wait()
                # The proxy must live until the replicas have drained: `shutdown` alone would end both at once
                ray.serve.delete(APP)
            finally:
                ray.serve.shutdown()


def _deploy(bundle: Path, host: str, port: int, limits: Limits, access: Access, replicas: int) -> None:
    """Start Ray Serve, and ask it for the replicas.

    Raises:
        InputError: it cannot listen.
    """
    import ray
    from ray import serve

    quiet = {"log_level": "WARNING", "enable_access_log": False}
    try:
        listens = {"host": host or "0.0.0.0", "port": port, "keep_alive_timeout_s": KEEP_ALIVE_SECONDS}
        serve.start(proxy_location="HeadOnly", http_options=listens, logging_config=quiet)
    except (OSError, RuntimeError, ray.exceptions.RayError) as e:
        raise InputError(Problem("--port", f"{port} on `{host}`: Ray Serve cannot listen: {cluster.last_line(e)}")) from e
    deployed = serve.deployment(
        name="bundle",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1},
        max_ongoing_requests=MAX_ONGOING,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        graceful_shutdown_wait_loop_s=LOOK_EVERY,
        max_constructor_retry_count=1,
    )(serve.ingress()(Replica))
    target = serve.RunTarget(deployed.bind(str(bundle), limits, access), APP, "/", quiet)
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)


@contextlib.contextmanager
def _ray(address: str | None, replicas: int) -> Iterator[None]:
    """A cluster that is joined, to which sweeps is shipped, or a Ray that ends with this."""
    import ray

    if address:
        cluster.reach(address)
        cluster.join(address, cluster.own_code())
    else:
        ray.init(address="local", num_cpus=replicas, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    node = None if address else ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    try:
        yield
    except BaseException:
        session = None  # its logs may tell why
        raise
    finally:
        ray.shutdown()
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


@contextlib.contextmanager
def _told(over: threading.Event) -> Iterator[None]:
    """While this lasts, SIGTERM and Ctrl-C set the event; a second one interrupts. Ray, when it starts, sets a handler of its own."""

    def handle(number: int, frame: Any) -> None:
        if over.is_set():
            raise KeyboardInterrupt
        over.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check(bundle: Path, replicas: int) -> None:
    """That a cluster can hold the replicas, sees the bundle, and serves nobody else's.

    Raises:
        InputError: it does not.
    """
    import ray

    if any(actor["namespace"] == SERVE_NAMESPACE for actor in ray.util.list_named_actors(all_namespaces=True)):
        text = "Ray Serve runs on this cluster already, and what it serves may be somebody else's; `serve shutdown` ends it"
        raise InputError(Problem("--address", text))
    cpus = ray.cluster_resources().get("CPU", 0)
    if cpus < replicas:
        raise InputError(Problem("--replicas", f"{replicas}: each takes a CPU, and the cluster has {cpus:g}"))
    if problems := cluster.unseen(bundle, cluster.who_sees(bundle / integrity.MANIFEST), "bundle"):
        raise InputError(problems)


def _runs(bundle: Path, replicas: int, over: threading.Event) -> bool:
    """Wait until every replica answers; False if told to end before.

    Raises:
        BundleError: they cannot start.
        InputError: they do not within `START_SECONDS`.
    """
    from ray import serve

    deadline = time.monotonic() + START_SECONDS
    while not over.wait(LOOK_EVERY):
        found = serve.status().applications.get(APP)
        if found is not None and found.status == "RUNNING":
            return True
        if found is not None and found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            said = " ".join(str(found.message).split())
            raise BundleError(f"{bundle}: no replica can serve it: {said[-500:]}")
        if time.monotonic() > deadline:
            text = f"{replicas}: they have not started within {START_SECONDS:.0f} s; each needs a CPU that is free"
            raise InputError(Problem("--replicas", text))
    return False
