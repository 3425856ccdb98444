"""Format the texts that commands print: a result, the list of sweeps, a sweep, and a trial."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sweeps.core.files.stores import is_address
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.text.command_hints import resume_command, sweep_argument
from sweeps.core.text.durations import format_clock
from sweeps.core.text.shell_text import (
    DEFAULT_ROOT,
    printable,
    relative_path,
    shell_command,
    shell_quoted,
)
from sweeps.core.text.texts import (
    aligned,
    count_noun,
    count_states,
    first_names,
    shortened,
    value_text,
)
from sweeps.core.trial import trained_on
from sweeps.sweep_report.configuration import short_rows
from sweeps.sweep_report.trial_rows import trial_facts

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.bundle.ensemble_summary import EnsembleSummary
    from sweeps.core.result import SweepResult
    from sweeps.stored.repair import RepairResult
    from sweeps.stored.sweep_summary import SweepSummary
    from sweeps.study.record import Record
    from sweeps.study.states import TrialState
    from sweeps.sweep_report.importance import Importance

# Width of lines if the output is a pipe or a file.
UNBOUNDED = 10_000
# Number of dimensions in the line about importance.
MOST_IMPORTANT = 6
# If a table is too wide, its cells are cut to this many characters.
MAX_CELL = 20
# Characters that are shown of a long value of a configuration.
MAX_VALUE = 200


def width_of(stream: TextIO) -> int:
    """Return the width of a stream's terminal, or `UNBOUNDED` for a pipe or a file."""
    return shutil.get_terminal_size().columns if stream.isatty() else UNBOUNDED


def format_bytes(number: int) -> str:
    """Format a number of bytes, such as `512 bytes` or `1.2 GB`."""
    from rich.filesize import decimal

    return decimal(number)


def format_age(seconds: float) -> str:
    """Format an age in the largest unit that fits: `40 s`, `12 min`, `3 h`, `5 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def short_value(value: JsonValue) -> str:
    """Format a value of a configuration.

    If it is long, show the beginning and the number of characters.
    """
    text = value_text(value)
    if len(text) <= MAX_VALUE:
        return text
    return f"{text[:MAX_VALUE]}… ({len(text):,} characters)"


def format_table(
    head: Sequence[str],
    rows: Sequence[Sequence[JsonValue]],
    width: int,
    right: Collection[str] = (),
) -> str:
    """Format an aligned table. If the table is too wide, long cells and then long lines are cut.

    Args:
        head: Name of each column.
        rows: Values of each row.
        width: Width of the terminal.
        right: Names of the columns that are aligned to the right.
    """
    texts = [[_one_line(short_value(value)) for value in row] for row in (head, *rows)]
    places = [at for at, name in enumerate(head) if name in right]
    lines = aligned(texts, places)
    if max(map(len, lines)) > width:
        most = [max(MAX_CELL, len(name)) for name in texts[0]]
        lines = aligned([list(map(shortened, row, most)) for row in texts], places)
    return "\n".join(line[:width].rstrip() for line in lines)


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def pairs(values: Iterable[tuple[str, JsonValue]]) -> list[str]:
    """Format names and values, one line each, with aligned values."""
    texts = [(name, value_text(value)) for name, value in values]
    size = max([12, *(len(name) for name, _ in texts)])
    return [f"  {name:<{size}}  {text}" for name, text in texts]


def configuration(trial: Mapping[str, Any]) -> list[str]:
    """Format the configuration of a trial, one line for each value; see `short_rows`."""
    return pairs((name, short_value(value)) for name, value in short_rows(trial))


# ---- the result of a sweep


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
    of = f" ({repeats['aggregate']} of {len(repeats['values'])} repeats)" if repeats else ""
    return [
        f"best trial {best['trial']}{of}: {_scores(best['value'], best['test'])}",
        *configuration(best),
    ]


def _scores(value: float | None, test: float | None) -> str:
    """Format the value of a trial, and its score on the test split if there is one."""
    text = "not finite" if value is None else f"{value:.6g}"
    return text if test is None else f"{text}, test {test:.6g}"


def _model_text(best: Mapping[str, Any] | None) -> str:
    """Return a text with facts about the exported model, or "" if there are none.

    These are the rows on which it was trained again, the size of its bundle, and its speed.
    """
    best = best or {}
    facts = [f"trained on {trained_on(best['refit'])}"] if best.get("refit") else []
    facts += [format_bytes(best["bytes"])] if best.get("bytes") else []
    if speed := best.get("rows_per_second"):
        facts.append(f"predicts {float(f'{speed:.2g}'):,.0f} rows a second")
    return f" ({'; '.join(facts)})" if facts else ""


def _places(result: SweepResult) -> list[str]:
    """Return lines with the places of a sweep: its folder, its store, its report, its model."""
    report = SweepFolder(result.dir).report("html")
    model = _model_text(result.best)
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
    where = "" if relative_path(root) == DEFAULT_ROOT else f" --dir {shell_quoted(root)}"
    where += "" if uri == f"sqlite:///{root / 'mlflow.db'}" else f" --tracking-uri {uri}"
    yield f"{sweeps} ui{where}"


def format_freed(freed: dict[str, int], done: str = "freed") -> str:
    """Format the number and size of the checkpoints that were deleted, or that would be deleted.

    Args:
        freed: See `SweepResult.freed`.
        done: The verb of the text, `freed` or `would free`.
    """
    if not freed["checkpoints"]:
        return f"there is no checkpoint to delete; checkpoints use {format_bytes(freed['left'])}"
    what = (
        f"{count_noun(freed['checkpoints'], 'checkpoint')} of "
        f"{count_noun(freed['trials'], 'trial')}"
    )
    return (
        f"{done} {format_bytes(freed['bytes'])}: {what}; the other checkpoints use "
        f"{format_bytes(freed['left'])}"
    )


def format_repair(done: RepairResult) -> str:
    """Format the result of a repair."""
    if not done.problems:
        return f"{done.folder.name}: nothing to repair"
    lines = [f"{done.folder.name}: {problem}" for problem in done.problems]
    lines += pairs([("kept", relative_path(path)) for path in done.kept])
    if done.trials:
        facts: list[tuple[str, str]] = []
        meanings = {
            "ended": "complete in the study",
            "unfinished": "not finished; a resume continues them",
            "lost": "lost; a resume samples new trials in their place",
        }
        for word, meaning in meanings.items():
            if names := done.trials[word]:
                count = count_noun(len(names), "trial")
                facts.append((word, f"{count}, {meaning}: {first_names(names)}"))
        facts.append(("resume", resume_command(done.folder)))
        lines += pairs(facts)
    return "\n".join(lines)


def _front(front: Sequence[dict[str, Any]]) -> str:
    """Format the Pareto front as a table with each trial's values and configuration."""
    rows = []
    for best in front:
        values = {name.upper(): value for name, value in best["values"].items()}
        rows.append({"FRONT": best["trial"], **values, **dict(short_rows(best))})
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name, "-") for name in head] for row in rows]
    return format_table(head, cells, UNBOUNDED, right=values)


# ---- `ls` and `show`


def format_sweeps(sweeps: Sequence[SweepSummary], width: int) -> str:
    """Format a list of sweeps."""
    rows = []
    for s in sweeps:
        ended = sum(s.trials.get(word, 0) for word in ("completed", "pruned", "failed"))
        best = f"{s.best[1]:.6g} ({s.best[0]})" if s.best else "-"
        rows.append(
            (
                s.name,
                s.state,
                f"{ended}/{s.total or '?'}",
                best,
                s.metric or "-",
                format_age(time.time() - s.began),
            )
        )
    return format_table(
        ("SWEEP", "STATE", "TRIALS", "BEST", "METRIC", "AGE"), rows, width, right=("TRIALS", "AGE")
    )


def format_sweep(
    sweep: SweepSummary,
    study: Record | None,
    importance: Importance | None = None,
    ensembles: Sequence[EnsembleSummary] = (),
) -> str:
    """Format the state, the best trial and the files of a sweep.

    Args:
        sweep: The sweep.
        study: Record of the sweep's trials; None if no trial has started.
        importance: The importances of the dimensions. None or unknown importances are not shown.
        ensembles: The ensembles that the sweep has exported.
    """
    result = sweep.result
    lines = [_state_line(sweep)]
    facts = [] if study is None else _study_facts(study)
    if sweep.algorithm:
        facts.append(("search", sweep.algorithm))
    if result is None:  # The result has a note about it.
        facts += [("learns from", text) for text in sweep.learned_from]
    best = None if result is None else result.best
    if sweep.best:
        test = f", test {best['test']:.6g}" if best and best["test"] is not None else ""
        facts.append(("best", f"{sweep.best[1]:.6g} (trial {sweep.best[0]}){test}"))
    if importance is not None and importance.shares:
        facts.append(("importance", format_importance(importance)))
    if result is not None:
        places = {"bundle": result.bundle, "checkpoint": result.checkpoint}
        model = _model_text(best)
        facts += [(key, f"{relative_path(path)}{model}") for key, path in places.items() if path]
    facts += [("ensemble", format_ensemble(ensemble)) for ensemble in ensembles]
    if not sweep.is_copy:
        facts.append(("folder", relative_path(sweep.folder)))
    if sweep.store:
        facts.append(("store", sweep.store))
    if sweep.state in ("killed", "interrupted", "paused"):
        facts.append(("resume", resume_command(sweep.folder)))
    lines += pairs(facts)
    lines += [f"note: {note}" for note in (result.notes if result is not None else ())]
    lines += [
        f"trial {trial}: {stage}"
        for trial, stage in sweep.stages.items()
        if stage.startswith("waiting since")
    ]
    return "\n".join(lines)


def _state_line(sweep: SweepSummary) -> str:
    """Format the state, the trials and the age of a sweep in one line."""
    counts = count_states(sweep.trials) or "no trial yet"
    ended = early = ""
    if sweep.result is not None:
        ended = f" in {format_clock(sweep.result.seconds)}"
        reason = sweep.result.reason
        early = f" ({reason})" if reason not in (None, sweep.state) else ""
    return (
        f"{sweep.name}: {sweep.state}{early}{ended}; {counts} of {sweep.total}; started "
        f"{format_age(time.time() - sweep.began)} ago"
    )


def _study_facts(study: Record) -> list[tuple[str, str]]:
    """Return what `show` prints about the objectives of a sweep."""
    judge, repeats = study.objectives, study.repeats
    facts = [("objective", ", ".join(f"{o.goal} {o.metric}" for o in judge.objectives))]
    if judge.constraints:
        facts.append(("constraints", ", ".join(map(str, judge.constraints))))
    if repeats.count > 1:
        facts.append(("repeats", f"{repeats.count}, compared by their {repeats.aggregate}"))
    if front := [t.id for t in study.front]:
        facts.append(("front", f"{len(front)}: {first_names(front)}"))
    return facts


def format_ensemble(ensemble: EnsembleSummary) -> str:
    """Format an exported ensemble in one line.

    The line has the ensemble's scores, those of the best single model, and the folder.
    """
    single = _scores(ensemble.single_value, ensemble.single_test)
    models = count_noun(len(ensemble.members), "model")
    place = ensemble.path if is_address(ensemble.path) else relative_path(Path(ensemble.path))
    scores = _scores(ensemble.value, ensemble.test)
    return f"{scores} ({models}; best single model {single}): {place}"


def format_importance(importance: Importance) -> str:
    """Format the importances of the most important dimensions in one line."""
    from sweeps.space.model.domains import short_names

    names = short_names([name for name, _ in importance.shares])
    shares = ", ".join(
        f"{names[name]} {share:.2f}" for name, share in importance.shares[:MOST_IMPORTANT]
    )
    more = len(importance.shares) - MOST_IMPORTANT
    return f"{shares}{f', and {more} more' if more > 0 else ''}; by {importance.basis}"


def _value_of(t: TrialState) -> str:
    """Format the value of a trial, and say which step it belongs to."""
    r = t.result
    if t.objectives.cross_validated:
        return f"{r.value:.6g}, the mean over {count_noun(r.steps, 'fold')}"
    at = f" at step {r.best_step}" if r.best_step is not None else ""
    if t.objectives.on_more_rows:
        return f"{r.value:.6g}{at}, the run on most rows"
    return f"best {r.value:.6g}{at}"


def _end_of(t: TrialState, state: str) -> str:
    """Format how a trial ended, in one line."""
    r = t.result
    if r.given:
        return (
            f"trial {t.id}: an initial point with a given result "
            f"({', '.join(map(value_text, r.values))}), so it was not run"
        )
    reason = f" ({t.reason})" if t.reason else ""
    attempts = f" in {t.attempt} attempts" if t.attempt > 1 else ""
    return (
        f"trial {t.id}: {state}{reason} after {count_noun(r.steps, 'step')}, {r.seconds:.1f} "
        f"s{attempts}"
    )


def format_trial(t: TrialState, state: str, checkpoint: str | None = None) -> str:
    """Format one trial: its configuration, curve and error.

    Args:
        t: The trial.
        state: The word for the trial's state.
        checkpoint: Path or address of the trial's best checkpoint; None if it does not exist.
    """
    r = t.result
    objective = t.objectives.objectives[0]
    lines = [_end_of(t, state)]
    lines += configuration(t.to_json())
    lines += pairs(trial_facts(t))
    if r.value is not None:
        lines += ["", f"{objective.metric} ({objective.goal}): {_value_of(t)}"]
    if t.curve:
        first, last = t.curve[0], t.curve[-1]
        lines.append(f"  step {first[0]}: {first[1]:.6g}  step {last[0]}: {last[1]:.6g}")
    lines += pairs((f"final {name}", f"{value:.6g}") for name, value in r.final.items())
    if r.checkpoint and checkpoint is not None:
        place = checkpoint if is_address(checkpoint) else relative_path(Path(checkpoint))
        lines += ["", f"checkpoint    step {r.checkpoint.best_step}, {place}"]
    if r.error:
        lines += ["", r.error.rstrip()]
    return "\n".join(lines)
