"""Format a `Plan` as aligned text."""

import math
import textwrap
from collections.abc import Collection, Sequence

from sweeps.core.text.texts import aligned, count_noun, shortened, value_text
from sweeps.search.plugins import planned_scheduler
from sweeps.space import Dimension
from sweeps.space.model.domains import short_names

from .plan_summary import Plan
from .steps import StepCount

# The largest number of cells that are listed one by one. The same number applies to shapes.
MAX_LINES = 12
# The largest number of lines for the options of a dimension, and the smallest width of these lines
# in columns.
OPTION_LINES = 4
OPTION_COLUMNS = 24
# The smallest width of a column of a table that is made narrower.
MIN_COLUMN = 8
# The limits that may end a sweep before its last trial.
EARLY_LIMITS = ("timeout", "max_gpu_hours", "target", "patience", "max_failures_in_a_row")
# Width of the names on the left, in columns.
LEFT = 12


def render(plan: Plan, width: int = 80, machine: str = "this machine") -> str:
    """Return the plan as text, in lines of at most `width` columns.

    Args:
        plan: Plan to format.
        width: Width of the terminal in columns. A width below 60 is treated as 60.
        machine: Short name for the machine that has the resources, such as "this machine".
    """
    room = max(width, 60) - LEFT
    resources = (
        ", ".join(f"{amount:g} {name}" for name, amount in plan.resources.items()) or "nothing"
    )
    trackers = ", ".join(tracker.name for tracker in plan.space.trackers) or "none"
    blocks = [
        {"dimensions": _dimensions(plan, room)},
        {
            "search": [_search(plan)],
            "learns from": [str(sweep) for sweep in plan.earlier],
            "trials": [_trials(plan)],
        },
        {"cells": _cells(plan, room)},
        {"shapes": _shapes(plan, room)},
        {
            "at once": [_concurrency(plan)],
            "data": _data(plan),
            "fits": [_fits(plan)],
            "steps": _steps(plan),
            "trackers": [trackers],
        },
    ]
    lines = [f"{plan.space.name} on {resources} ({machine})"]
    for block in blocks:
        if any(block.values()):
            lines.append("")
        for name, paragraphs in block.items():
            lines += _with_label(name, LEFT, _wrapped(paragraphs, room))
    return "\n".join(lines)


def _with_label(label: str, width: int, lines: Sequence[str]) -> list[str]:
    """Put a label of `width` columns before the first line, and spaces before the other lines."""
    return [("" if i else label).ljust(width) + line for i, line in enumerate(lines)]


def _wrapped(paragraphs: Sequence[str], width: int) -> list[str]:
    """Wrap paragraphs into lines of at most `width` columns."""
    return [
        line for text in paragraphs for line in textwrap.wrap(text, width, break_on_hyphens=False)
    ]


def _table(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), width: float = math.inf
) -> list[str]:
    """Format rows as aligned columns, two spaces apart.

    While the lines are too wide, the widest column is made narrower.

    Args:
        rows: The cells of each row.
        right: Indices of the columns that are aligned to the right.
        width: Largest width of a line in columns.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(sizes) + 2 * (len(sizes) - 1) > width and max(sizes) > MIN_COLUMN:
        sizes[sizes.index(max(sizes))] -= 1
    return aligned([list(map(shortened, row, sizes)) for row in rows], right)


def _dimensions(plan: Plan, width: int) -> list[str]:
    """List the dimensions: name, domain and values."""
    dims = plan.space.dimensions
    if not dims:
        return ["none: trials differ only in their seeds"]
    left = _table([(d.name, d.kind) for d in dims], width=width - OPTION_COLUMNS - 2)
    start = max(map(len, left)) + 2
    lines = []
    for label, dim in zip(left, dims, strict=True):
        values = _wrapped([dimension_values(dim)], width - start)
        if len(values) > OPTION_LINES:
            values = [*values[: OPTION_LINES - 1], f"… {len(dim.options)} in all"]
        lines += _with_label(label, start, values)
    return lines


def dimension_values(dim: Dimension) -> str:
    """Return the values of a dimension as text."""
    if dim.options:
        return ", ".join(value_text(option.key) for option in dim.options)
    if dim.lower is None:
        text = f"mean {dim.mean:g}, sd {dim.sd:g}"
    else:
        text = f"{dim.lower:g} to {dim.highest:g}"
    return text + (f", by {dim.q:g}" if dim.q not in (None, 1) else "")


def _search(plan: Plan) -> str:
    """Return the name of the algorithm.

    If the space file does not name an algorithm, also say why sweeps chose this one.
    """
    reason = plan.space.algorithm_reason
    name = plan.space.search.algorithm
    if not plan.space.dimensions:
        return f"{name}, which has nothing to choose: no dimension is tuned"
    return name + (f", chosen by sweeps: {reason}" if reason else "")


def _trials(plan: Plan) -> str:
    """Describe the number of trials, the first of them, and what may change the number."""
    clauses = [f"{plan.trials}{_cell_counts(plan)}"]
    if plan.configurations is not None:
        clause = f"the space has {count_noun(plan.configurations, 'configuration')}"
        if plan.trials == plan.configurations:
            clause += ", and each is tried once"
        clauses.append(clause)
    repeats = plan.space.repeats.count
    if repeats > 1:
        clauses.append(
            f"each complete trial is run {repeats} times, at most {plan.trials + plan.repeats} "
            "trials in all"
        )
    clauses += _first_trials(plan)
    early = [
        f"limits.{name}" for name in EARLY_LIMITS if getattr(plan.space.limits, name) is not None
    ]
    if early:
        clauses.append(f"{' or '.join(early)} may end the sweep earlier")
    return "; ".join(clauses)


def _cell_counts(plan: Plan) -> str:
    """Return text about the number of grid cells, and of trials in each; "" without cells."""
    cells = plan.cells
    if not cells:
        return ""
    text = f" in {count_noun(len(cells), 'cell')}"
    # Number of values of each grid. Many cells are described by these numbers if the cells are all
    # combinations of the values.
    grids = {name: len({cell.get(name) for cell, _ in cells}) for name in cells[0][0]}
    if len(cells) > MAX_LINES and math.prod(grids.values()) == len(cells):
        short = short_names(list(grids))
        text += f" ({' × '.join(f'{number} {short[name]}' for name, number in grids.items())})"
    least = min(plan.counts)
    most = max(plan.counts)
    text += f", {least if least == most else f'{least} or {most}'} each"
    if not plan.counts_exact:
        text += (
            ", approximately: a grid inside a choice is visited only when the sampler takes that "
            "option"
        )
    return text


def _first_trials(plan: Plan) -> list[str]:
    """Describe the trials whose configurations are fixed before the sampler suggests others."""
    clauses = []
    search = plan.space.search
    to_run = sum(point.values is None for point in search.initial_points)  # others are never run
    if to_run:
        are_points = "is an initial point" if to_run == 1 else f"{to_run} are initial points"
        clauses.append(f"the first {are_points}")
    if plan.earlier:
        then = "then " if to_run else ""
        clauses.append(
            f"{then}one is suggested, and the best configuration of each earlier sweep is next"
        )
    if name := search.portfolio:
        from sweeps.search.first_points import first_points  # imports Optuna

        count = len(first_points(plan.space)) - to_run
        clauses.append(f"{count} are the default of the trainer and known good ones ({name})")
    return clauses


def _cells(plan: Plan, width: int) -> list[str]:
    """List the grid cells with their numbers of trials.

    Return [] if there are no cells or more than `MAX_LINES`.
    """
    cells = plan.cells
    if not cells or len(cells) > MAX_LINES:
        return []
    names = list(dict.fromkeys(name for cell, _ in cells for name in cell))
    rows = [
        [*(value_text(cell[name]) if name in cell else "-" for name in names), str(count)]
        for cell, count in cells
    ]
    return _table(
        [[*short_names(names).values(), "trials"], *rows], right=[len(names)], width=width
    )


def _shapes(plan: Plan, width: int) -> list[str]:
    """List the shapes.

    For each shape, give the number of its trials, and how many of them fit on the machine at the
    same time.
    """
    digits = max(len(str(planned.at_once)) for planned in plan.shapes)
    # If the shape is sampled, a trial is counted for each shape that it may have.
    is_sampled = sum(planned.trials for planned in plan.shapes) > plan.trials + plan.repeats
    up_to = "up to " if is_sampled else ""
    rows = []
    for planned in plan.shapes:
        trials = up_to + count_noun(planned.trials, "trial")
        rows.append([str(planned.shape), trials, f"{planned.at_once:>{digits}} at once"])
    if len(rows) <= MAX_LINES:
        return _table(rows, right=[1], width=width)
    table = _table([*rows[: MAX_LINES - 2], rows[-1]], right=[1], width=width)
    hidden = len(rows) - len(table)
    return [*table[:-1], f"… {hidden} more", table[-1]]


def _concurrency(plan: Plan) -> str:
    """Describe how many trials run at the same time, and what limits this number."""
    number = count_noun(plan.concurrency, "trial")
    if plan.concurrency == plan.trials:
        return "all trials"
    if plan.space.limits.max_concurrent_trials is not None:
        text = f"{number} (limits.max_concurrent_trials)"
        if plan.concurrency > plan.fitting_trials:
            text += f"; {plan.fitting_trials} fit, the others wait"
        return text
    if len(plan.shapes) > 1:
        return f"at most {number}, if each has the smallest shape"
    return f"{number}; more do not fit"


def _data(plan: Plan) -> list[str]:
    """Describe how the data is read, and how many different `data` sections the trials have.

    Return [] if the space names no data.
    """
    if plan.ingest is None:
        return []
    mode = "streamed" if plan.ingest.mode == "stream" else "in memory"
    ingest = f"{mode}: {plan.ingest.reason}"
    if plan.variants is None:
        return ["up to one variant for each trial", ingest]
    if plan.variants == 1:
        return [ingest]
    sources = len({spec.source for spec in plan.space.variants})
    of_sources = f" of {sources} sources" if sources > 1 else ""
    return [f"{plan.variants} variants{of_sources}", ingest]


def _fits(plan: Plan) -> str:
    """Describe the number of preprocessors to fit."""
    fits = plan.fits
    if fits.most == 0:
        return "none: no preprocessing"
    text = "1 preprocessor, fitted once"
    if fits.most > 1:
        text = f"{fits.most} preprocessors, each fitted once"
    at_most = "" if fits.exact else "at most "
    variant = " on its data variant" if plan.variants != 1 else ""
    folds = f" for each of {plan.space.data.folds} folds" if plan.space.data.folds else ""
    return f"{at_most}{text}{variant}{folds}"


def _steps(plan: Plan) -> list[str]:
    """Describe the number of steps, and the steps at which the scheduler compares trials."""
    steps = plan.steps
    name = plan.space.scheduler.name
    if steps is None and (folds := plan.space.data.folds):
        return [f"at most {folds * plan.trials:,}: a trial has one step for each of {folds} folds"]
    if steps is None:
        return ["unlimited: there is no scheduler.max_t, so each trial runs until its loop ends"]
    if not steps.rungs:
        end = f"step {steps.max_t} or to the end of its loop"
        return [f"at most {steps.most:,}: every trial runs to {end}"]
    if steps.counts_rows:
        return _row_steps(plan, steps)
    rungs = ", ".join(map(str, steps.rungs))
    where = f"step{'s' * (len(steps.rungs) > 1)} {rungs}"
    if steps.every:
        where = f"every step from {rungs} on"
    decisions = f"{name} decides at {where} and ends trials at step {steps.max_t}"
    scheduler = planned_scheduler(plan.space.scheduler)
    if scheduler.bracket_count > 1:
        starts = [str(scheduler.rungs(bracket)[0]) for bracket in range(scheduler.bracket_count)]
        decisions += f"; its brackets start at steps {', '.join(starts)}"
    typical = f"about {_round(steps.typical):,} in a simulation with random values"
    return [f"at most {steps.most:,}; {typical}", decisions]


def _row_steps(plan: Plan, steps: StepCount) -> list[str]:
    """Describe on how many rows the trials train, if the scheduler counts rows."""
    typical = f"{steps.typical / steps.max_t:,.1f}"
    most = f"{steps.most / steps.max_t:,.1f}"
    shares = [f"{rung}/{steps.max_t}" for rung in steps.rungs]
    compared = f"{', '.join(shares[:-1])} and {shares[-1]}" if len(shares) > 1 else shares[0]
    decisions = f"{plan.space.scheduler.name} decides after runs on {compared} of the train rows"
    return [
        f"{decisions}; the trials that are left train on all rows",
        f"the runs read at most {most} times the train rows; about {typical} in a simulation with "
        f"random values, and {plan.trials + plan.repeats:,} without a scheduler",
    ]


def _round(number: int) -> int:
    """Round a number to two significant digits."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return round(number / unit) * unit
