"""`sweeps serve --replicas`: run the application under Ray Serve until SIGTERM or Ctrl-C, on a local Ray or on a cluster.

At the signal, requests that have already arrived are still answered. Ray Serve restarts replicas
that die.
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

from sweeps.bundle import integrity
from sweeps.bundle.model import Bundle, load_bundle
from sweeps.core import crash_cleanup, logging_setup
from sweeps.core.errors import BundleError, InputError
from sweeps.core.installed_package import install
from sweeps.execution import cluster, ray_authentication, shared_storage
from sweeps.execution.ray_errors import last_line
from sweeps.execution.shipped_code import own_code
from sweeps.serving.access import Access
from sweeps.serving.limits import DRAIN_SECONDS, KEEP_ALIVE_SECONDS, Limits
from sweeps.serving.server import listening, say_example, url_of, warn_if_open

APP = "sweeps"
START_SECONDS = 120.0
CHECK_SECONDS = 0.2
# Largest number of concurrent requests for a replica. Requests that reach the replica while the
# model is busy form the next batch.
MAX_ONGOING = 1000
# The namespace of Ray Serve's own actors.
SERVE_NAMESPACE = "serve"


class Replica:
    """Replica for Ray Serve: a process that loads the bundle and runs the application."""

    def __init__(self, bundle: str, limits: Limits, access: Access, example: bool):
        from ray import serve

        from sweeps.serving.app import make_app

        name = serve.get_replica_context().replica_id.unique_id
        self.made = make_app(load_bundle(bundle), limits, access, name, example)

    def __serve_build_asgi_app__(self) -> Any:
        """Return the application. `serve.ingress` calls this method."""
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
    example: bool = True,
) -> None:
    """Serve a bundle with several processes under Ray Serve, until SIGTERM or Ctrl-C.

    Args:
        bundle: The bundle's folder. Every node must be able to read it.
        host: The host to listen on. With `address`, this is a name or an address of the cluster's
            head node.
        port: The port to listen on. Without `address`, 0 means any free port.
        say: Function that prints a message, such as the address once the server listens.
        limits: Limits on a request.
        access: The allowed hosts and the token.
        replicas: Number of replicas. Each uses one CPU.
        address: Address of a cluster; None to start a local Ray.
        example: True to show one of the bundle's example rows; see `make_app`.

    Raises:
        InputError: The bundle, the address or the cluster cannot be used, or the extra `serve` is
            not installed.
        BundleError: The bundle is broken, or no replica can load it.
    """
    loaded = _check_installation(bundle, port, address)
    folder = loaded.path
    import ray.serve

    warn_if_open(host, access, say)
    if address is None:
        with listening(host, port) as listener:
            port = listener.getsockname()[1]
    with _ray(address, replicas):
        if address:
            _check(folder, replicas)
        stop = threading.Event()
        with _set_on_signal(stop):
            try:
                _deploy(folder, host, port, limits, access, replicas, example)
                if _wait_until_running(bundle, replicas, stop):
                    place = url_of(host, port) + (" of the head node" if address else "")
                    paths = "/predict, /schema, /health, /metrics, /docs"
                    say(
                        f"serving {bundle} at {place} with --replicas {replicas} ({paths}); press "
                        "Ctrl-C to stop"
                    )
                    if example:
                        say_example(loaded, url_of(host, port), access, say)
                    stop.wait()
                # The proxy must run until the replicas have answered their requests. `shutdown`
                # alone would end the proxy and the replicas at once.
                ray.serve.delete(APP)
            finally:
                ray.serve.shutdown()  # type: ignore[no-untyped-call]


def _check_installation(bundle: Path, port: int, address: str | None) -> Bundle:
    """Check the options, the packages and the bundle before anything is started.

    Return the loaded bundle.

    Raises:
        InputError, BundleError: See `serve`.
    """
    if address and port == 0:
        raise InputError(
            "--port",
            "0 is not allowed with --address; name a port that is free on the cluster's head node",
        )
    logging_setup.set_environment()
    if address:
        ray_authentication.prepare_authentication(address)
    try:
        import ray.serve  # noqa: F401

        from sweeps.serving.app import require_columns
    except ImportError as e:
        raise InputError(
            "--replicas", f"needs the package `{e.name}`: {install('serve')}"
        ) from None
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    loaded = load_bundle(bundle.resolve())
    require_columns(loaded)
    return loaded


def _deploy(
    bundle: Path, host: str, port: int, limits: Limits, access: Access, replicas: int, example: bool
) -> None:
    """Start Ray Serve and deploy the replicas.

    Raises:
        InputError: Ray Serve cannot listen on this host and port.
    """
    import ray
    from ray import serve

    quiet = {"log_level": "WARNING", "enable_access_log": False}
    try:
        listens = {
            "host": host or "0.0.0.0",
            "port": port,
            "keep_alive_timeout_s": KEEP_ALIVE_SECONDS,
        }
        serve.start(proxy_location="HeadOnly", http_options=listens, logging_config=quiet)
    except (OSError, RuntimeError, ray.exceptions.RayError) as e:
        raise InputError(
            "--port", f"Ray Serve cannot listen on port {port} of `{host}`: {last_line(e)}"
        ) from e
    deployed = serve.deployment(
        name="bundle",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1},
        max_ongoing_requests=MAX_ONGOING,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        graceful_shutdown_wait_loop_s=CHECK_SECONDS,
        max_constructor_retry_count=1,
    )(serve.ingress()(Replica))
    target = serve.RunTarget(deployed.bind(str(bundle), limits, access, example), APP, "/", quiet)
    serve.run_many(
        [target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False
    )


@contextlib.contextmanager
def _ray(address: str | None, replicas: int) -> Iterator[None]:
    """Join the cluster at `address` and send the code of this package to it; without an address, start a local Ray.

    At the end of the context, leave the cluster or stop the local Ray.
    """
    import ray

    if address:
        cluster.check_reachable(address)
        cluster.join(address, own_code())
    else:
        with crash_cleanup.cleaned_up_on_failure():
            ray.init(
                address="local",
                num_cpus=replicas,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    node = None if address else ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    try:
        yield
    except BaseException:
        session = None  # keep the session's logs, which may show the cause
        raise
    finally:
        ray.shutdown()
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


@contextlib.contextmanager
def _set_on_signal(over: threading.Event) -> Iterator[None]:
    """Set `over` at the first SIGTERM or Ctrl-C, and raise `KeyboardInterrupt` at the second.

    Enter this context after Ray has set its own signal handlers.
    """

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
    """Check that a cluster has a CPU for each replica, that its nodes can read the bundle, and that Ray Serve is not running there yet.

    Raises:
        InputError: One of these checks fails.
    """
    import ray

    if any(
        actor["namespace"] == SERVE_NAMESPACE
        for actor in ray.util.list_named_actors(all_namespaces=True)
    ):
        text = (
            "Ray Serve already runs on this cluster, perhaps for another user; if nobody needs "
            "it, stop it with `serve shutdown`"
        )
        raise InputError("--address", text)
    cpus = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    if cpus < replicas:
        raise InputError(
            "--replicas", f"{replicas} replicas need {replicas} CPUs, but the cluster has {cpus:g}"
        )
    if problems := shared_storage.storage_problems(
        bundle, shared_storage.read_on_nodes(bundle / integrity.MANIFEST), "bundle"
    ):
        raise InputError(problems)


def _wait_until_running(bundle: Path, replicas: int, over: threading.Event) -> bool:
    """Wait until all replicas run, and return True. Return False if `over` is set first.

    Raises:
        BundleError: The replicas cannot start.
        InputError: The replicas do not start within `START_SECONDS`.
    """
    from ray import serve

    deadline = time.monotonic() + START_SECONDS
    while not over.wait(CHECK_SECONDS):
        application = serve.status().applications.get(APP)
        if application is not None and application.status == "RUNNING":
            return True
        if application is not None and application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            message = " ".join(str(application.message).split())
            raise BundleError(f"{bundle}: no replica can serve the bundle: {message[-500:]}")
        if time.monotonic() > deadline:
            text = (
                f"{replicas} replicas did not start within {START_SECONDS:.0f} s; each replica "
                "needs a free CPU"
            )
            raise InputError("--replicas", text)
    return False
