"""Check that all nodes of a cluster share the sweep's folder, or reach its store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.core import stores
from sweeps.core.errors import InputError, Problem
from sweeps.core.sweep_folder import ORIGIN
from sweeps.execution.ray_errors import last_line

ANSWER_WITHIN = 60.0  # seconds
NO_ANSWER = object()  # Result for a node that does not answer within this time.


def check_storage(folder: Path) -> None:
    """Check that the sweep's folder is on storage that all nodes share.

    Workers write checkpoints there, and the driver reads them.

    Raises:
        InputError: The folder is not the same on a node, or a node did not answer. The error has a
            problem for each of these nodes.
    """
    if problems := storage_problems(folder.parent, read_on_nodes(folder / ORIGIN)):
        raise InputError(problems)


def check_store_on_nodes(store: str) -> None:
    """Check that every node of the cluster reaches the sweep's store.

    Workers write checkpoints there, and read them.

    Raises:
        InputError: A node does not reach the store, or did not answer. The error has a problem for
            each of these nodes.
    """
    problems = []
    for node, reason in _ask_nodes(
        stores.unreachable_from_here, store, stores.needed_environment()
    ).items():
        if reason is NO_ANSWER:
            problems.append(_silent_node(node))
        elif reason is not None:
            problems.append(Problem("--dir", f"node {node} does not reach the store: {reason}"))
    if problems:
        raise InputError(problems)


def read_on_nodes(file: Path) -> dict[str, bool | None]:
    """Check on each node whether `file` exists with the same content as on this machine.

    Returns:
        Maps the address of each node to True if the content is the same and to False if not. The
        value is None if the node did not answer.

    Raises:
        InputError: A node cannot run the code that was sent.
    """
    answers = _ask_nodes(_has_content, str(file), file.read_bytes())
    return {node: None if answer is NO_ANSWER else answer for node, answer in answers.items()}


def _ask_nodes(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function on each node.

    Return the results by the node's address; `NO_ANSWER` for a node that does not answer in time.

    Raises:
        InputError: A node cannot run the code that was sent.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = {}
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    for node in ray.nodes():
        if node["Alive"]:
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[task.options(scheduling_strategy=on_node).remote(*arguments)] = node[
                "NodeManagerAddress"
            ]
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_WITHIN)
    seen: dict[str, Any] = {asked[ref]: NO_ANSWER for ref in silent}
    for ref in answered:
        try:
            seen[asked[ref]] = ray.get(ref)
        except ray.exceptions.RayError as e:
            raise InputError(
                "--address",
                f"node {asked[ref]} cannot run the code that sweeps sent: {last_line(e)}",
            ) from e
    return seen


def _has_content(file: str, expected: bytes) -> bool:
    """Return whether a file exists on this node and has the expected content."""
    try:
        return Path(file).read_bytes() == expected
    except OSError:
        return False


def storage_problems(
    shared: Path, seen: dict[str, bool | None], place: str = "--dir"
) -> list[Problem]:
    """Return one problem for each node with another folder `shared`, or without an answer.

    On each node, `shared` must be the same folder as on this node.

    Args:
        shared: Folder that must be on storage that every node shares.
        seen: Result of `read_on_nodes` for a file in this folder.
        place: Option or argument that contains the folder's path. Problems about nodes with another
            folder start with this text.
    """
    problems = []
    for node, same in seen.items():
        if same is None:
            problems.append(_silent_node(node))
        elif not same:
            text = (
                f"{shared} is not the same folder on node {node}; with --address, this folder "
                "must be on storage that every node shares"
            )
            problems.append(Problem(place, text))
    return problems


def _silent_node(node: str) -> Problem:
    return Problem("--address", f"node {node} did not answer within {ANSWER_WITHIN:.0f} s")
