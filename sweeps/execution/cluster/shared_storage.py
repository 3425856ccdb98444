"""Check that all nodes of a cluster share the sweep's folder, or reach its store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.files import stores
from sweeps.core.files.sweep_folder import ORIGIN

from .ray_errors import last_line

ANSWER_WITHIN = 60.0  # seconds


def check_storage(folder: Path) -> None:
    """Check that the sweep's folder is on storage that all nodes share.

    Workers write checkpoints there, and the driver reads them.

    Raises:
        InputError: The folder is not the same on a node, or a node did not answer. The error has a
            problem for each of these nodes.
    """
    file = folder / ORIGIN
    answers, silent = ask_nodes(_has_content, str(file), file.read_bytes())
    rule = "with --address, this folder must be on storage that every node shares"
    _raise_problems(
        [
            f"{folder.parent} is not the same folder on node {node}; {rule}"
            for node, same in answers.items()
            if not same
        ],
        silent,
    )


def check_store_on_nodes(store: str) -> None:
    """Check that every node of the cluster reaches the sweep's store.

    Workers write checkpoints there, and read them.

    Raises:
        InputError: A node does not reach the store, or did not answer. The error has a problem for
            each of these nodes.
    """
    answers, silent = ask_nodes(stores.unreachable_from_here, store, stores.needed_environment())
    _raise_problems(
        [
            f"node {node} does not reach the store: {reason}"
            for node, reason in answers.items()
            if reason is not None
        ],
        silent,
    )


def ask_nodes(function: Callable[..., Any], *arguments: Any) -> tuple[dict[str, Any], list[str]]:
    """Call a function on each node.

    Returns:
        The results by the node's address, and the addresses of the nodes that do not answer in
        time.

    Raises:
        InputError: A node cannot run the code that was sent.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = {}  # by the reference to the node's result
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    for node in ray.nodes():
        if node["Alive"]:
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = task.options(scheduling_strategy=on_node).remote(*arguments)
            nodes[reference] = node["NodeManagerAddress"]
    answered, silent = ray.wait(list(nodes), num_returns=len(nodes), timeout=ANSWER_WITHIN)
    answers = {}
    for reference in answered:
        node = nodes[reference]
        try:
            answers[node] = ray.get(reference)
        except ray.exceptions.RayError as e:
            text = f"node {node} cannot run the code that sweeps sent: {last_line(e)}"
            raise InputError("--address", text) from e
    return answers, [nodes[reference] for reference in silent]


def _has_content(file: str, expected: bytes) -> bool:
    """Return whether a file exists on this node and has the expected content."""
    try:
        return Path(file).read_bytes() == expected
    except OSError:
        return False


def _raise_problems(texts: list[str], silent: list[str]) -> None:
    """Raise InputError if there are texts of problems, or nodes that did not answer."""
    problems = [Problem("--dir", text) for text in texts]
    problems += [
        Problem("--address", f"node {node} did not answer within {ANSWER_WITHIN:.0f} s")
        for node in silent
    ]
    if problems:
        raise InputError(problems)
