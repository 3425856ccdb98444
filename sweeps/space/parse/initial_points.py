"""Parse `search.initial_points`, and check them against the dimensions."""

from collections.abc import Sequence

from sweeps.core.json_values import is_number
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.conditions import Key, holds
from sweeps.space.model.domains import Dimension, Keys, cumulative_probability
from sweeps.space.model.templates import Sections, conditions_of
from sweeps.space.sections.search_models import InitialPoint
from sweeps.space.yaml.scalars import scalar_hint

from .nodes import Node, Problems
from .when_parser import InvalidConditionValue, describe_values, option_of

VALUE = "value"  # the key under which a point gives a known result; no dimension has this name


class InitialPointsParser:
    """Parser of the list of initial points.

    Args:
        dimensions: Dimensions of the space, in the order of the file.
        sections: Sections of the space.
        objectives: Number of objectives.
        problems: Collects the problems.
        decided: True if a point must have values for all dimensions that decide whether its other
            values are active.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        sections: Sections,
        objectives: int,
        problems: Problems,
        decided: bool = False,
    ):
        self.dims = {dim.name: dim for dim in dimensions}
        self.conditions = conditions_of(sections)
        self.objectives = objectives
        self.problems = problems
        self.decided = decided

    def read(self, node: Node) -> tuple[InitialPoint, ...]:
        """Parse the list, and return the valid points. Add a problem for each invalid point."""
        points = [self.point(child) for child in node.value]
        return tuple(point for point in points if point is not None)

    def point(self, node: Node) -> InitialPoint | None:
        """Parse one point. Return None after a problem."""
        if not node.is_map or not node.value:
            form = "{params.eta: 0.1}"
            node.wrong(
                f"must be a mapping of dimensions to values, such as {form}, got {node.show()}"
            )
            return None
        problems_before = len(self.problems)
        keys: Keys = {}
        known: Keys = {}  # the values with which conditions are evaluated
        for name, child in node.items():
            if name == VALUE:
                continue
            if name not in self.dims:
                hint = did_you_mean(name, [*self.dims, VALUE])
                node.wrong(f"the space has no dimension `{name}`; {hint}", child.at)
                continue
            try:
                keys[name], known[name] = key_and_value(self.dims[name], child)
            except InvalidConditionValue as e:
                child.wrong(e.with_value(child))
        if len(self.problems) > problems_before:
            return None
        missing = self._check_conditions(node, known)
        values = self._values(node.value[VALUE]) if VALUE in node.value else None
        if values is not None and missing:
            text = (
                "a point with `value` must have a value for every active dimension; missing: "
                f"{', '.join(missing[:5])}"
            )
            node.wrong(text, node.value[VALUE].at)
        return InitialPoint(keys, values) if len(self.problems) == problems_before else None

    def _check_conditions(self, node: Node, known: Keys) -> list[str]:
        """Add a problem for each inactive dimension for which the point has a value.

        Return the names of the active dimensions for which the point has no value.
        """
        missing: list[str] = []
        undecided: set[str] = set()  # dimensions that have no value in this point and may be active
        for name in self.dims:
            when = self.conditions[name]
            is_active = holds(when, known, undecided)  # None if undecided dimensions decide this
            if name not in known:
                if is_active is not False:
                    undecided.add(name)
                if is_active:
                    missing.append(name)
            elif is_active is False:
                node.value[name].wrong_key("is inactive with the other values of this point")
            elif is_active is None and self.decided:
                needed = " and ".join(f"`{term.name}`" for term in when if term.name not in known)
                text = f"is active only with certain values of {needed}; give a value for {needed}"
                node.value[name].wrong_key(f"{text}, too")
        return missing

    def _values(self, node: Node) -> tuple[float, ...] | None:
        """Parse the known results of a point (its key `value`), one for each objective.

        Return None after a problem.
        """
        children = node.value if node.is_list and self.objectives > 1 else [node]
        values = [child.value for child in children]
        if len(values) == self.objectives and all(is_number(value) for value in values):
            return tuple(map(float, values))
        form = "a number"
        if self.objectives > 1:
            form = f"a list of {self.objectives} numbers, one for each objective"
        node.wrong(f"must be {form}, got {node.show()}")
        return None


def key_and_value(dim: Dimension, node: Node) -> tuple[Key, Key]:
    """Convert the value that an initial point gives for a dimension into a sampler's key.

    Args:
        dim: Dimension for which the point gives the value.
        node: The value in the space file.

    Returns:
        The key, and the value with which conditions (`when`) on this dimension are evaluated.

    Raises:
        InvalidConditionValue: The dimension cannot have this value.
    """
    if dim.options:
        key = option_of(dim, node)
        return key, key
    value = node.value
    if not is_number(value) or (dim.is_integer and not isinstance(value, int)):
        raise InvalidConditionValue(
            f"must be {'an integer' if dim.is_integer else 'a number'}{scalar_hint(value)}"
        )
    if dim.lower is not None and dim.highest is not None and not dim.lower <= value <= dim.highest:
        raise InvalidConditionValue(f"must be within its bounds, {describe_values(dim)}")
    if dim.nearest(value) != value:
        start = f"{dim.lower:g} plus " if dim.lower else ""
        raise InvalidConditionValue(f"must be {start}a multiple of {dim.q}")
    if dim.mean is not None:
        return cumulative_probability(dim, value), float(value)
    return (value, value) if dim.is_integer else (float(value), float(value))
