"""The type of the figures, and how they show texts. `plots` makes the figures."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sweeps.core.text.texts import shortened, value_text
from sweeps.space import Dimension
from sweeps.space.model.conditions import Key

if TYPE_CHECKING:
    import plotly.graph_objects

# An object of Plotly's JSON, such as a trace or a layout.
PlotlyObject = dict[str, Any]

# Longest line of a caption in a notebook.
CAPTION_WIDTH = 90
# Height of a figure in a notebook in pixels, without its title and its caption. Some figures have a
# height of their own.
HEIGHT = 400
# Heights of the title and of a line of the caption, in pixels.
TITLE_HEIGHT = 60
LINE_HEIGHT = 18
# Longest text in a figure.
MOST_CHARACTERS = 90
# Longest text of an option, which labels a tick of an axis.
MOST_OPTION_CHARACTERS = 24


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
    if isinstance(value, (list, tuple)):
        return [literal(inner) for inner in value]
    return value


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
        room = TITLE_HEIGHT + LINE_HEIGHT * len(lines)
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
