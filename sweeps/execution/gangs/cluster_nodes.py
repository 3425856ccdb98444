"""The nodes of the cluster, and the resources that the sweep may hold on them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray

from sweeps.core.resources import Shape, missing_resources, stream_cpus


class ClusterNodes:
    """The living nodes, and the limits of the sweep.

    Args:
        fixed: Resources that the sweep may use on the single machine on which it has started Ray.
            None on a running cluster: the sweep then uses the resources of the cluster's nodes.
        limit: See the attribute `limit`.
        reserves: True if workers leave CPUs to Ray Data, on a running cluster; see `stream_cpus`.

    Attributes:
        limit: Amounts of some resources that the sweep may hold on all nodes together.
        are_fixed: True if the sweep has started Ray, so that no node can join.
        here: Id of the pool's node.
        resources: Resources of each living node, by node id.
        names: Host and address of each living node, by node id.
    """

    def __init__(
        self, fixed: Mapping[str, float] | None, limit: Mapping[str, float], reserves: bool
    ):
        self.limit = limit
        self.are_fixed = fixed is not None
        self.here: str = ray.get_runtime_context().get_node_id()
        self.resources: dict[str, Mapping[str, float]] = {}
        self.names: dict[str, str] = {}
        self._fixed = fixed
        self._reserves = reserves
        self.update(ray.nodes())

    async def refresh(self) -> None:
        """Ask Ray which nodes are alive."""
        self.update(await asyncio.to_thread(ray.nodes))

    def update(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Set the nodes that are alive.

        Args:
            nodes: The cluster's nodes as `ray.nodes` returns them, including the nodes that have
                died.
        """
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        self.names = {
            name: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            for name, node in alive.items()
        }
        if self._fixed is not None:
            self.resources = {next(iter(alive)): self._fixed}
            return
        self.resources = {
            name: {
                resource: amount
                for resource, amount in node["Resources"].items()
                if not resource.startswith("node:")
            }
            for name, node in alive.items()
        }

    @property
    def worker_limit(self) -> Mapping[str, float]:
        """The limit without the CPUs that workers and fits leave to Ray Data."""
        if not self._reserves:
            return self.limit
        cpus = sum(node.get("CPU", 0.0) for node in self.resources.values())
        most = min(cpus, self.limit.get("CPU", cpus))
        return {**self.limit, "CPU": max(0.0, most - stream_cpus(most))}

    @property
    def total(self) -> dict[str, float]:
        """Amounts of all resources of the cluster, but at most those that the sweep may hold."""
        existing = sum_of(self.resources.values())
        limits = self.worker_limit
        return existing | {name: min(limits[name], existing.get(name, 0.0)) for name in limits}

    def missing_text(self, shape: Shape) -> str:
        """Return a text that says what a shape needs and what the nodes lack for it."""
        missing = missing_resources(shape, self.total, list(self.resources.values()))
        return f"{shape} needs {missing}"


def sum_of(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of several amounts of resources, by name."""
    total: dict[str, float] = {}
    for amount in amounts:
        for name, value in amount.items():
            total[name] = total.get(name, 0.0) + value
    return total
