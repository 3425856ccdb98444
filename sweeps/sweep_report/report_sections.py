"""The sections of a sweep's report, as Markdown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.bundle.ensemble_summary import EnsembleSummary
from sweeps.core.metrics import base_name
from sweeps.core.result import SweepResult
from sweeps.core.text.choice_text import choice_text
from sweeps.core.text.markdown_text import cell, code, code_block, table
from sweeps.core.text.new_rows_text import new_rows_sentences
from sweeps.core.text.texts import count_noun, count_states, value_text
from sweeps.core.trial import State, refit_rows_text
from sweeps.space import Space
from sweeps.space.model.domains import short_names
from sweeps.study.record_reader import STOPPED, Record
from sweeps.study.states import TrialState

from .configuration import short_rows
from .plot_data import PlotData

if TYPE_CHECKING:
    from sweeps.data.summary.data_summary import DataSummary

# The number of trials in the table of the best trials.
TOP = 10
# The largest number of dimensions in a table, so that the table fits on a page. MLflow has the
# complete configurations.
MAX_COLUMNS = 8


def format_results(
    record: Record,
    space: Space,
    result: SweepResult,
    data: PlotData,
    ensembles: Sequence[EnsembleSummary],
) -> str:
    """Return the first part of the report as Markdown: everything about the trials.

    `content.report` describes the arguments, except `data`, which has the values of the plots.
    """
    names = short_names([d.name for d in space.dimensions])
    parts = [
        _head(record, names, result),
        _spent(result),
        _notes(result.notes),
        _best(record, result),
        _top(data.ranked, names, record.metric, result.best["trial"] if result.best else None),
        _ensembles(ensembles),
        _importance(data),
        _commands(record.trials),
        _failures(record.trials),
    ]
    return "\n\n".join(part for part in parts if part)


def format_appendix(space: Space, result: SweepResult, summary: DataSummary | None) -> str:
    """Return the last part of the report as Markdown.

    The part has the data, the use of the bundle, and the space file. MLflow gets the report without
    the space file: the MLflow tracker removes the heading `Space file` and everything after it.
    """
    data = "" if summary is None else f"{_data(summary, space)}\n\n"
    return f"{data}{_usage(result)}\n\n{_space(space)}"


def _head(record: Record, names: dict[str, str], result: SweepResult) -> str:
    """Return the title and the main result in a few lines, for readers who read no further.

    `names` has the short name of each dimension, by the dimension's name.
    """
    best = result.best
    if result.front:
        return f"# {cell(result.sweep)}\n\n{_front(result.front)}"
    if best is None:
        return f"# {cell(result.sweep)}\n\n**No trial has a value.**"
    trial = _trial(record, best["trial"])
    sentence = f"**{cell(record.metric)} {value_cell(best['value'])}**"
    if best["test"] is not None:
        sentence += f"; on the test rows **{value_cell(best['test'])}**"
    sentence += f": trial {cell(best['trial'])}"
    values = []
    dimension_values = {} if trial is None else trial.labels
    for name, value in dimension_values.items():
        if name in names:
            title = "" if name == "preprocessor" else f"{cell(names[name])} "
            values.append(title + value_cell(value))
    if values:
        sentence += f" with {', '.join(values)}"
    refit = best.get("refit")
    trained = f" The exported model was trained on {refit_rows_text(refit)}." if refit else ""
    if ensemble := best.get("ensemble"):
        members = ", ".join(f"{cell(t)} (weight {w})" for t, w in ensemble["members"].items())
        trained = (
            f" The exported model averages {count_noun(len(ensemble['members']), 'trial')}: "
            f"{members}. On valid, it scores {value_cell(ensemble['value'])}"
        )
        if ensemble["test"] is not None:
            trained += f", and on test {value_cell(ensemble['test'])}"
        trained += "."
    if (choice := best.get("choice")) is not None:
        text = choice_text(best["trial"], choice)
        trained += f" {text[0].upper()}{text[1:]}."
    if (new_rows := best.get("new_rows")) is not None:
        trained += f" {new_rows_sentences(new_rows)}"
    return f"# {cell(result.sweep)}\n\n{sentence}.{trained}"


def _front(front: Sequence[dict[str, Any]]) -> str:
    """Return a sentence about the Pareto front, and a table of its trials and their values."""
    names = list(front[0]["values"])
    rows = [
        [
            cell(trial["trial"]) + "?" * bool(trial.get("uncertain")),
            *(value_cell(trial["values"][name]) for name in names),
        ]
        for trial in front
    ]
    head = (
        f"**{count_noun(len(front), 'trial')} on the Pareto front** of "
        f"{', '.join(map(cell, names))}"
    )
    text = (
        f"{head}. For each of these trials, no other trial is better in one objective and at "
        "least as good in the others."
    )
    return f"{text}\n\n{table(['trial', *map(cell, names)], rows)}"


def _best(record: Record, result: SweepResult) -> str:
    """Return a section with the configuration of the best trial; "" if there is no best trial."""
    best = result.best
    if best is None:
        return ""
    rows = []
    if (trial := _trial(record, best["trial"])) is not None:
        step = f"{trial.result.best_step} of {trial.result.steps}"
        if trial.result.state is State.PRUNED:
            step += f", at which the trial was stopped ({cell(trial.reason)})"
        rows.append(["best step", step])
    rows += [[cell(name), value_cell(value)] for name, value in short_rows(best)]
    return f"## Trial {cell(best['trial'])}\n\n" + table(["", ""], rows)


def _trial(record: Record, trial_id: str) -> TrialState | None:
    """Return a trial of a record; None if a damaged record lacks the trial."""
    return next((t for t in record.trials if t.id == trial_id), None)


def _spent(result: SweepResult) -> str:
    """Return a sentence with the duration of the sweep and some counts.

    The counts are the number of trials in each state, and the number of fitted preprocessors.
    """
    counts = count_states(result.trials) or "no trial"
    trials = count_noun(sum(result.trials.values()), "trial")
    fits = count_noun(result.fits, "preprocessor")
    ended = f" Ended early: {cell(result.reason)}." if result.reason else ""
    return f"{trials} in {duration(result.seconds)}: {counts}; {fits} fitted.{ended}"


def _notes(notes: Sequence[str]) -> str:
    """Return the notes of the sweep's result as a Markdown list."""
    return "\n".join(f"- {cell(note)}" for note in notes)


def _top(ranked: Sequence[TrialState], names: dict[str, str], metric: str, best: str | None) -> str:
    """Return a section with a table of the best `TOP` trials; "" if no trial has a value.

    Args:
        ranked: The trials with a value, the one with the best value first.
        names: Short name of each dimension, by the dimension's name.
        metric: Metric of the objective.
        best: Id of the sweep's best trial. It may not be the first of `ranked`.
    """
    if not ranked:
        return ""
    columns = [name for name in names if any(name in t.labels for t in ranked)]
    shown = columns[:MAX_COLUMNS]
    titles = ["trial", metric, "state", "steps", "seconds", *(names[name] for name in shown)]
    rows = []
    for t in ranked[:TOP]:
        r = t.result
        facts = [t.id, value_cell(r.value), r.state.name, str(r.steps), f"{r.seconds:.1f}"]
        values = [value_cell(t.labels[name]) if name in t.labels else "" for name in shown]
        rows.append([*facts, *values])
    is_cut = len(ranked) > len(rows)
    title = f"The best {len(rows)} of {len(ranked)} trials" if is_cut else "Trials"
    parts = [f"## {title}", table([cell(title) for title in titles], rows)]
    if len(columns) > len(shown):
        parts.append(f"{len(columns) - len(shown)} more dimensions are not shown.")
    if best is not None and ranked[0].id != best:
        parts.append(
            "A trial that was stopped early never wins against a trial that ran to its end."
        )
    return "\n\n".join(parts)


def _ensembles(ensembles: Sequence[EnsembleSummary]) -> str:
    """Return a section about the exported ensembles; "" if there are none."""
    if not ensembles:
        return ""
    rows = []
    for ensemble in ensembles:
        members = ", ".join(
            f"{cell(trial)} (weight {weight})" for trial, weight in ensemble.members.items()
        )
        name = cell(Path(ensemble.path).name)
        rows.append([name, value_cell(ensemble.value), value_cell(ensemble.test), members])
        single = f"the best single model, trial {cell(ensemble.single)}"
        rows.append(
            [single, value_cell(ensemble.single_value), value_cell(ensemble.single_test), ""]
        )
    head = ["", f"{cell(base_name(ensembles[0].metric))} on valid", "on test", "members"]
    return (
        f"## Ensembles\n\n{table(head, rows)}\n\nThe members were chosen on the rows of valid, so "
        "their scores on valid are optimistic."
    )


def _commands(trials: Sequence[TrialState]) -> str:
    """Return a section about the trials that users have stopped or enqueued while the sweep ran.

    Return "" if there are none.
    """
    changed = {
        "sweeps enqueue": [t.id for t in trials if t.trial.enqueued],
        "sweeps stop": [t.id for t in trials if t.reason == STOPPED],
    }
    lines = [f"- `{command}`: {', '.join(ids)}" for command, ids in changed.items() if ids]
    return "\n".join(["## Trials that commands added or stopped\n", *lines]) if lines else ""


def _importance(data: PlotData) -> str:
    """Return a section with the importance of each dimension; "" if the importances are unknown."""
    importance = data.importance
    if not importance.shares:
        return ""
    listed = ", ".join(f"{cell(data.names[name])} {share:.2f}" for name, share in importance.shares)
    return (
        f"## Importance of the dimensions\n\n{listed}; by Optuna's PED-ANOVA on {importance.basis}."
    )


def _failures(trials: Iterable[TrialState]) -> str:
    """Return a section with the errors of the first three failed trials; "" if no trial failed."""
    failed = [t for t in trials if t.result.state is State.FAIL]
    if not failed:
        return ""
    lines = [f"- trial {t.id}: {cell(last_line(t.result.error))}" for t in failed[:3]]
    if len(failed) > 3:
        lines.append(f"- and {len(failed) - 3} more")
    listed = "\n".join(lines)
    return f"## Failed trials\n\n{listed}\n\nThe tracebacks are in `sweep.log`."


def _data(summary: DataSummary, space: Space) -> str:
    """Return a section with the warnings about the data, and a table of its columns."""
    from sweeps.data.summary import summary_text
    from sweeps.data.summary.summary_warnings import warnings

    texts = [f"- {cell(warning.text)}" for warning in warnings(summary, space)]
    rows = [[cell(text) for text in row] for row in summary_text.table_rows(summary)]
    parts = [
        "## Data",
        f"{cell(summary_text.one_line(summary))}.",
        "\n".join(["Warnings:\n", *texts]) if texts else "",
        table(summary_text.HEAD, rows),
        " ".join(summary_text.remarks(summary)),
    ]
    return "\n\n".join(part for part in parts if part)


def _usage(result: SweepResult) -> str:
    """Return a section that shows how to use the bundle.

    Without a bundle, the section gives the path of the best trial's checkpoint.
    """
    folder = f"The sweep's folder: {code(str(result.dir))}"
    if result.bundle is None:
        if not result.checkpoint:
            return folder
        return f"## Files\n\nThe checkpoint is in {code(str(result.checkpoint))}.\n\n{folder}"
    bundle = str(result.bundle)
    commands = code_block("bash", f"sweeps predict {shlex.quote(bundle)} rows.csv")
    loads = f"bundle = sweeps.load_bundle({json.dumps(bundle, ensure_ascii=False)})"
    python = code_block("python", f"import sweeps\n\n{loads}\nbundle.predict(frame)")
    return f"## Use the bundle\n\n{commands}\n\n{python}\n\n{folder}"


def _space(space: Space) -> str:
    """Return a section with the space file, and a list of the changes made with `--set`."""
    parts = ["## Space file", code_block("yaml", space.public(space.text).strip())]
    parts += [f"Changed: {code(space.public(override))}" for override in space.overrides]
    parts += [f"Variable: {cell(name)} = {cell(value)}" for name, value in space.variables.items()]
    return "\n\n".join(parts)


def last_line(error: str | None) -> str:
    """Return the last line of a traceback, which names the error.

    Return "no error was recorded" if there is no traceback.
    """
    lines = (error or "").strip().splitlines()
    return lines[-1][:300] if lines else "no error was recorded"


def value_cell(value: Any) -> str:
    """Format a value for Markdown. A finite float is rounded to six significant digits."""
    return cell(value_text(value))


def duration(seconds: float) -> str:
    """Format a number of seconds for people.

    >>> duration(42.3), duration(3725)
    ('42 s', '1 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
