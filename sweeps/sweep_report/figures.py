"""The types of the figures, and pure functions that choose the trials and the values to show.

`plots` makes the figures.
"""

from __future__ import annotations

import html
import math
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sweeps.core.text.texts import shortened, value_text
from sweeps.space import Dimension
from sweeps.space.model.conditions import Key
from sweeps.space.model.domains import short_names
from sweeps.space.sections.search_models import Objective
from sweeps.study import ranking

if TYPE_CHECKING:
    import plotly.graph_objects

    from sweeps.core.trial import Result
    from sweeps.space import Space
    from sweeps.study.record import Record
    from sweeps.study.states import TrialState
    from sweeps.sweep_report.importance import Importance

T = TypeVar("T")
# An object of Plotly's JSON, such as a trace or a layout.
PlotlyObject = dict[str, Any]

# Longest line of a caption in a notebook.
CAPTION_WIDTH = 90
# Height of a figure in a notebook without its title and its caption, unless the figure has a height
# of its own.
HEIGHT = 400
# Smallest number of trials for importances at a rung. If fewer trials reached a rung, the values at
# an earlier rung are more informative.
MIN_RUNG_TRIALS = 30
# Smallest number of trials for which importances are computed. With fewer trials, importances are
# mostly noise.
MIN_IMPORTANCE_TRIALS = 10
# Longest text in a figure, and longest text of an option, which labels a tick of an axis.
MOST_CHARACTERS, MOST_OPTION_CHARACTERS = 90, 24
# The largest range of whole numbers of which an axis labels each.
MAX_WHOLE_TICKS = 12


class Raw(str):
    """A text that Plotly gets unchanged: a template, or a text that is not read as HTML."""


def literal(value: Any) -> Any:
    """Return a part of Plotly's JSON, so that Plotly shows its texts as they are. Cut long texts.

    Plotly reads most texts as HTML, in which `<a>` is a link. Plotly also reads `$...$` as TeX, and
    `%{...}` as a template. Floats get six significant digits, which keeps the figures short. A
    float that is not finite becomes None.
    """
    if isinstance(value, str) and not isinstance(value, Raw):
        text = html.escape(shortened(value, MOST_CHARACTERS), quote=False)
        return text.replace("$", "&#36;").replace("%{", "%&#123;")
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: literal(inner) for key, inner in value.items()}
    return [literal(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def short_texts(texts: Sequence[str], most: int) -> list[str]:
    """Return texts of about `most` characters. Texts are numbered if the cut makes some equal."""
    short = [shortened(text, most) for text in texts]
    if len(set(short)) == len(short):
        return short
    return [f"{number}: {text}" for number, text in enumerate(short, 1)]


def option_texts(dimension: Dimension) -> dict[Key, str]:
    """Return the text of each option of a dimension, by the option's key. The texts differ."""
    keys = [option.key for option in dimension.options]
    texts = short_texts([value_text(key) for key in keys], MOST_OPTION_CHARACTERS)
    return dict(zip(keys, texts, strict=True))


@dataclass(frozen=True)
class Figure:
    """A figure of a sweep.

    Attributes:
        key: Name of the figure in addresses, such as `history`.
        title: The title above the figure.
        plot: The figure as Plotly's JSON, an object with the keys `data` and `layout`; {} if there
            is nothing to draw. The constructor takes names as they are, and escapes them; see
            `literal`.
        note: The caption. It describes the figure, or says why there is nothing to draw.
    """

    key: str
    title: str
    plot: PlotlyObject = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plot", literal(self.plot))

    def to_plotly(self) -> plotly.graph_objects.Figure:
        """Return the figure as an object of the package Plotly, for example for a notebook.

        The caption is below the title.
        """
        import plotly.graph_objects as go

        figure = go.Figure(self.plot or None)
        lines = textwrap.wrap(self.note, CAPTION_WIDTH)
        subtitle = {"text": "<br>".join(map(literal, lines))}
        title = {
            "text": literal(self.title),
            "subtitle": subtitle,
            "y": 1.0,
            "yanchor": "top",
            "yref": "container",
            "pad": {"t": 12},
        }
        layout = self.plot.get("layout", {"height": 0})
        room = 60 + 18 * len(lines)  # for the title and the caption
        margin = layout.get("margin", {}).get("t", 0) + room
        figure.update_layout(
            title=title, margin={"t": margin, "b": 60}, height=layout.get("height", HEIGHT) + room
        )
        if not self.plot:
            figure.update_xaxes(visible=False).update_yaxes(visible=False)
        return figure

    def to_json(self) -> dict[str, str | PlotlyObject]:
        """Return the figure as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class PlotData:
    """Everything that the figures of a sweep show.

    Attributes:
        dimensions: The dimensions of the space.
        objectives: The objectives. Most figures show the first objective.
        rungs: The steps at which the scheduler compares trials, in ascending order; () if there are
            no such steps.
        trials: The trials that were run, in the order of their numbers.
        front: Numbers of the trials on the Pareto front; () for a single objective.
        is_driven: True if a process is running the sweep.
        now: Current time in seconds since the epoch. Running trials end at this time in the
            timeline.
        parts: If the scheduler counts rows, the number of parts of the train rows
            (`scheduler.max_t`). Each step is a number of parts. None if steps are reports of the
            loop.
    """

    dimensions: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    rungs: tuple[int, ...]
    trials: tuple[TrialState, ...]
    front: tuple[int, ...] = ()
    is_driven: bool = False
    now: float = 0.0
    parts: int | None = None

    @property
    def metric(self) -> str:
        """Name of the first objective's metric."""
        return self.objectives[0].metric

    @property
    def minimize(self) -> bool:
        """True if smaller values of the first objective are better."""
        return self.objectives[0].goal == "minimize"

    @cached_property
    def names(self) -> dict[str, str]:
        """Short name of each dimension, by the dimension's name."""
        return short_names([d.name for d in self.dimensions])

    @cached_property
    def ranked(self) -> list[TrialState]:
        """The trials with a finite value, the best first."""
        return best_first(self.trials, self.minimize)

    @cached_property
    def sampled(self) -> list[Dimension]:
        """The dimensions that have a value in some trial with a finite value.

        The most important come first, if importances are known. Dimensions with a single value come
        last.
        """
        seen: dict[str, set[Key]] = {}
        for t in self.ranked:
            for name, value in t.labels.items():
                seen.setdefault(name, set()).add(value)
        order = {name: at for at, (name, _) in enumerate(self.importance.shares)}
        found = [d for d in self.dimensions if d.name in seen]
        return sorted(found, key=lambda d: (order.get(d.name, len(order)), len(seen[d.name]) < 2))

    @cached_property
    def importance(self) -> Importance:
        """The importances of the dimensions."""
        from sweeps.sweep_report.importance import importance_of

        return importance_of(self)


def plot_data(record: Record, space: Space, is_driven: bool = False) -> PlotData:
    """Return what the figures of a sweep show now.

    Args:
        record: The content of the study.
        space: The search space.
        is_driven: True if a process is running the sweep.
    """
    from sweeps.search.plugins import planned_scheduler
    from sweeps.search.schedulers.scheduler import all_rungs

    return PlotData(
        dimensions=space.dimensions,
        objectives=record.objectives.objectives,
        rungs=tuple(all_rungs(planned_scheduler(space.scheduler))),
        trials=record.ran,
        front=tuple(t.number for t in record.front),
        is_driven=is_driven,
        now=time.time(),
        parts=space.scheduler.max_t if space.scheduler.counts_rows else None,
    )


def basis_of(trials: Sequence[TrialState], rungs: Sequence[int]) -> tuple[str, dict[int, float]]:
    """Return comparable values of the trials: values at the same step.

    The best values of the trials are not comparable, because a trial that was stopped early had
    fewer steps. The values are therefore taken at the highest rung at which at least
    `MIN_RUNG_TRIALS` trials have a finite value. If there is no such rung, the lowest rung that any
    trial reached is used. If no trial has a finite value there either, the best values of the
    trials are returned.

    Args:
        trials: The trials of the sweep.
        rungs: The steps at which the scheduler compares trials, in ascending order; empty if there
            are no such steps.

    Returns:
        (description, values). The description is a short text, such as "the values at step 9, which
        40 trials reached". `values` maps trial numbers to these values. Trials without such a value
        are left out. All values are finite.
    """
    reached = {step for t in trials for step, _ in t.curve if step in rungs}
    for rung in sorted(reached, reverse=True):
        values = {
            t.number: value
            for t in trials
            for step, value in t.curve
            if step == rung and math.isfinite(value)
        }
        if len(values) >= MIN_RUNG_TRIALS or (rung == min(reached) and values):
            return f"the values at step {rung}, which {len(values)} trials reached", values
    values = {
        t.number: t.result.value
        for t in trials
        if t.result.value is not None and math.isfinite(t.result.value)
    }
    return f"the values of {len(values)} trials", values


def thin(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items, spread evenly. The first and the last item are always kept."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def whole_axis(values: Iterable[Key]) -> dict[str, int]:
    """Return settings of an axis for a few whole numbers. Other axes need no settings.

    Without these settings, Plotly would also label fractions between the numbers.
    """
    known = set(values)
    whole = [v for v in known if isinstance(v, int) and not isinstance(v, bool)]
    if not whole or len(whole) < len(known) or max(whole) - min(whole) > MAX_WHOLE_TICKS:
        return {}
    return {"dtick": 1}


def finite(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the points of a curve whose value is finite."""
    return [(step, value) for step, value in curve if math.isfinite(value)]


def best_first(trials: Sequence[TrialState], minimize: bool) -> list[TrialState]:
    """Return the trials with a finite value, the best first."""
    valued = [t for t in trials if t.result.value is not None and math.isfinite(t.result.value)]
    sign = 1 if minimize else -1
    return sorted(valued, key=lambda t: (sign * (t.result.value or 0.0), t.number))


def best_so_far(trials: Sequence[TrialState], minimize: bool) -> list[tuple[int, float]]:
    """Return the best value so far after each trial that improved it, as (number, value).

    The last point is at the last trial. As for the winner of a sweep, only trials of the best tier
    count; see `ranking.tier`. A running trial has no tier, because its value is not final. The list
    is empty if no trial has a tier.
    """
    results = {t.number: t.result for t in sorted(trials, key=lambda t: t.number)}
    winner = ranking.winner(results.items(), minimize)
    if winner is None:
        return []
    tier = ranking.tier(results[winner])
    best: Result | None = None
    points: list[tuple[int, float]] = []
    for number, result in results.items():
        if ranking.tier(result) == tier and ranking.ahead(result, best, minimize):
            best = result
            points.append((number, float(result.value or 0.0)))
    return [*points, (max(results), points[-1][1])]
