"""Format the result of a sweep: the best trial, the bundle, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.text.choice_text import choice_text
from sweeps.core.text.command_hints import resume_command, sweep_argument
from sweeps.core.text.durations import format_clock
from sweeps.core.text.new_rows_text import new_rows_lines
from sweeps.core.text.shell_text import DEFAULT_ROOT, relative_path, shell_command, shell_quoted
from sweeps.core.text.texts import count_noun, count_states
from sweeps.core.trial import refit_rows_text
from sweeps.sweep_report.configuration import short_rows

from .terminal_text import UNBOUNDED, configuration, format_bytes, format_table

if TYPE_CHECKING:
    from sweeps.core.result import SweepResult


def format_result(result: SweepResult, unexported: bool = False) -> str:
    """Format the result of a sweep: the best trial, the bundle, and the next commands.

    Args:
        result: The result of the sweep.
        unexported: True if the best trial could not be exported.
    """
    sections = [_summary(result)]
    if result.front:
        sections.append([_front(result.front)])
    elif result.best is not None:
        sections.append(_best_trial(result.best))
    sections.append(_places(result))
    sections.append(["next:", *(f"  {command}" for command in _next_commands(result, unexported))])
    return "\n\n".join("\n".join(lines) for lines in sections)


def _summary(result: SweepResult) -> list[str]:
    """Return the first lines of a result: the numbers of trials, the time, and the notes."""
    head = (
        f"{result.sweep}: {count_states(result.trials) or 'no trial'} in "
        f"{format_clock(result.seconds)}; {count_noun(result.fits, 'preprocessor')} fitted"
    )
    if result.reason:
        head += f" (ended early: {result.reason})"
    lines = [head]
    if result.freed is not None and result.freed["checkpoints"]:
        lines.append(format_freed(result.freed))
    return [*lines, *(f"note: {note}" for note in result.notes)]


def _best_trial(best: dict[str, Any]) -> list[str]:
    """Return lines with the score and the configuration of the best trial."""
    repeats = best.get("repeats")
    name = f"best trial {best['trial']}"
    if repeats:
        name += f" ({repeats['aggregate']} of {len(repeats['values'])} repeats)"
    lines = [f"{name}: {scores(best['value'], best['test'])}", *configuration(best)]
    about_new_rows: list[str] = []
    if (choice := best.get("choice")) is not None:
        lines.insert(1, f"  {choice_text(best['trial'], choice)}")
    if (new_rows := best.get("new_rows")) is not None:
        about_new_rows = [f"  {line}" for line in new_rows_lines(new_rows)]
    if (ensemble := best.get("ensemble")) is None:
        return [lines[0], *about_new_rows, *lines[1:]]
    average = f"average of {count_noun(len(ensemble['members']), 'trial')}"
    first = f"{average}: {scores(ensemble['value'], ensemble['test'])}"
    return [first, *about_new_rows, *lines]


def scores(value: float | None, test: float | None) -> str:
    """Format the value of a trial, and its score on the test split if there is one."""
    text = "not finite" if value is None else f"{value:.6g}"
    return text if test is None else f"{text}, test {test:.6g}"


def model_text(best: Mapping[str, Any] | None) -> str:
    """Return a text with facts about the exported model, or "" if there are none.

    These are the members of an average or its folds, the rows on which the model was trained again,
    the size of its bundle, and its speed.
    """
    best = best or {}
    facts = []
    if ensemble := best.get("ensemble"):
        facts.append(ensemble_text(ensemble))
    if best.get("folds"):
        facts.append(f"average of the models of {count_noun(best['folds'], 'fold')}")
    if best.get("refit"):
        facts.append(f"trained on {refit_rows_text(best['refit'])}")
    if best.get("bytes"):
        facts.append(format_bytes(best["bytes"]))
    if best.get("rows_per_second"):
        rounded = float(f"{best['rows_per_second']:.2g}")
        facts.append(f"predicts {rounded:,.0f} rows a second")
    return f" ({'; '.join(facts)})" if facts else ""


def ensemble_text(ensemble: Mapping[str, Any]) -> str:
    """Return a text about an average, such as `average of 5 trials`.

    Args:
        ensemble: The key `ensemble` of `SweepResult.best`.
    """
    count = len(ensemble["members"])
    text = f"average of {count_noun(count, 'trial')}"
    refitted = ensemble["refitted"]
    if not refitted:
        return text
    trained = "trained" if refitted == count else f"{refitted} of them trained"
    return f"{text}, {trained} on {refit_rows_text(ensemble['rows'])}"


def _places(result: SweepResult) -> list[str]:
    """Return lines with the places of a sweep: its folder, its store, its report, its model."""
    report = SweepFolder(result.dir).report("html")
    model = model_text(result.best)
    lines = [f"folder  {relative_path(result.dir)}"]
    if result.store:
        lines.append(f"store   {result.store}")
    if report.is_file():
        lines.append(f"report  {relative_path(report)}")
    if result.bundle:
        lines.append(f"bundle  {relative_path(result.bundle)}{model}")
    elif result.checkpoint:
        place = f"checkpoint  {relative_path(result.checkpoint)}{model}"
        lines.append(f"{place} (the trainer has no `load`, so there is no bundle)")
    return lines


def _next_commands(result: SweepResult, unexported: bool) -> Iterator[str]:
    """Yield the commands that a user may want next; see `format_result`."""
    sweeps = shell_command("sweeps")
    sweep = sweep_argument(result.dir)
    if result.front:
        yield f"{sweeps} export {sweep} --pareto    # or --trial {result.front[0]['trial']}"
    elif result.bundle:
        rows = next(result.bundle.rglob("check.parquet"), Path("rows.csv"))
        yield f"{sweeps} predict {shell_quoted(result.bundle)} {shell_quoted(rows)}"
    elif unexported and not result.checkpoint:
        yield f"{sweeps} export {sweep}    # when the cause is fixed; no trial is trained again"
    if result.reason == "interrupted":
        yield f"{resume_command(result.dir)}    # continues where the sweep stopped"
    yield f"{sweeps} show {shell_quoted(result.dir)}"
    uri = result.mlflow.get("tracking_uri")
    if uri is None:  # MLflow has not recorded the sweep.
        return
    if uri.startswith("http"):
        yield f"open {uri}"
        return
    root = result.dir.parent
    command = f"{sweeps} ui"
    if relative_path(root) != DEFAULT_ROOT:
        command += f" --dir {shell_quoted(root)}"
    yield command
    if uri != f"sqlite:///{root / 'mlflow.db'}":
        yield f"mlflow server --backend-store-uri {shlex.quote(uri)}"


def format_freed(freed: dict[str, int], done: str = "freed") -> str:
    """Format the number and size of the checkpoints that were deleted, or that would be deleted.

    Args:
        freed: See `SweepResult.freed`.
        done: The verb of the text, `freed` or `would free`.
    """
    if not freed["checkpoints"]:
        return f"there is no checkpoint to delete; checkpoints use {format_bytes(freed['left'])}"
    deleted = (
        f"{count_noun(freed['checkpoints'], 'checkpoint')} of "
        f"{count_noun(freed['trials'], 'trial')}"
    )
    return (
        f"{done} {format_bytes(freed['bytes'])}: {deleted}; the other checkpoints use "
        f"{format_bytes(freed['left'])}"
    )


def _front(front: Sequence[dict[str, Any]]) -> str:
    """Format the Pareto front as a table with each trial's values and configuration."""
    rows = []
    metrics = [name.upper() for name in front[0]["values"]]
    for trial in front:
        values = dict(zip(metrics, trial["values"].values(), strict=True))
        mark = "?" if trial.get("uncertain") else ""
        rows.append({"FRONT": f"{trial['trial']}{mark}", **values, **dict(short_rows(trial))})
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name, "-") for name in head] for row in rows]
    return format_table(head, cells, UNBOUNDED, right=metrics)
