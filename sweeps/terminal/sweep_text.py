"""Format the texts of `ls`, `show` and `repair`: sweeps, a sweep, a trial, and a repair."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.files.stores import is_address
from sweeps.core.text.choice_text import choice_text
from sweeps.core.text.command_hints import resume_command
from sweeps.core.text.durations import format_clock
from sweeps.core.text.new_rows_text import new_rows_lines
from sweeps.core.text.shell_text import relative_path
from sweeps.core.text.texts import count_noun, count_states, first_names, value_text
from sweeps.sweep_report.trial_rows import trial_facts

from .result_text import model_text, scores
from .terminal_text import configuration, format_age, format_table, pairs

if TYPE_CHECKING:
    from sweeps.bundle.ensemble_summary import EnsembleSummary
    from sweeps.core.result import SweepResult
    from sweeps.stored.repair import RepairResult
    from sweeps.stored.sweep_summary import SweepSummary
    from sweeps.study.record_reader import Record
    from sweeps.study.states import TrialState
    from sweeps.sweep_report.importance import Importance

# Number of dimensions in the line about importance.
MOST_IMPORTANT = 6


def format_repair(repair: RepairResult) -> str:
    """Format the result of a repair."""
    if not repair.problems:
        return f"{repair.folder.name}: nothing to repair"
    lines = [f"{repair.folder.name}: {problem}" for problem in repair.problems]
    lines += pairs([("kept", relative_path(path)) for path in repair.kept])
    if repair.trials:
        facts: list[tuple[str, str]] = []
        meanings = {
            "ended": "complete in the study",
            "unfinished": "not finished; a resume continues them",
            "lost": "lost; a resume samples new trials in their place",
        }
        for fate, meaning in meanings.items():
            names = repair.trials[fate]
            if names:
                count = count_noun(len(names), "trial")
                facts.append((fate, f"{count}, {meaning}: {first_names(names)}"))
        facts.append(("resume", resume_command(repair.folder)))
        lines += pairs(facts)
    return "\n".join(lines)


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
    importance: Importance | None,
    ensembles: Sequence[EnsembleSummary],
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
    facts: list[tuple[str, str]] = []
    if study is not None:
        facts = _study_facts(study, result)
    if sweep.algorithm:
        facts.append(("search", sweep.algorithm))
    if result is None:  # A result has a note about the earlier sweeps.
        facts += [("learns from", text) for text in sweep.learned_from]
    best = None if result is None else result.best
    if sweep.best:
        test = f", test {best['test']:.6g}" if best and best["test"] is not None else ""
        facts.append(("best", f"{sweep.best[1]:.6g} (trial {sweep.best[0]}){test}"))
    if best and (choice := best.get("choice")) is not None:
        facts.append(("choice", choice_text(best["trial"], choice)))
    if best and (average := best.get("ensemble")):
        trials = count_noun(len(average["members"]), "trial")
        facts.append(("average", f"{scores(average['value'], average['test'])} ({trials})"))
    if best and (new_rows := best.get("new_rows")) is not None:
        lines_of_rows = new_rows_lines(new_rows)
        facts += [("new rows", line.removeprefix("on new rows ")) for line in lines_of_rows]
    if importance is not None and importance.shares:
        facts.append(("importance", format_importance(importance)))
    if result is not None:
        places = {"bundle": result.bundle, "checkpoint": result.checkpoint}
        model = model_text(best)
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
        f"{sweep.name}: {sweep.state}{early}{ended}; {counts} of {sweep.total or '?'}; started "
        f"{format_age(time.time() - sweep.began)} ago"
    )


def _study_facts(study: Record, result: SweepResult | None) -> list[tuple[str, str]]:
    """Return what `show` prints about the objectives of a sweep."""
    objectives = study.objectives.objectives
    constraints = study.objectives.constraints
    repeats = study.repeats
    facts = [("objective", ", ".join(f"{o.goal} {o.metric}" for o in objectives))]
    if constraints:
        facts.append(("constraints", ", ".join(map(str, constraints))))
    if repeats.count > 1:
        facts.append(("repeats", f"{repeats.count}, compared by their {repeats.aggregate}"))
    recorded = () if result is None else result.front
    uncertain = {trial["trial"] for trial in recorded if trial.get("uncertain")}
    if front := [t.id + "?" * (t.id in uncertain) for t in study.front]:
        facts.append(("front", f"{len(front)}: {first_names(front)}"))
    return facts


def format_ensemble(ensemble: EnsembleSummary) -> str:
    """Format an exported ensemble in one line.

    The line has the ensemble's scores, those of the best single model, and the folder.
    """
    single = scores(ensemble.single_value, ensemble.single_test)
    models = count_noun(len(ensemble.members), "model")
    place = ensemble.path if is_address(ensemble.path) else relative_path(Path(ensemble.path))
    averaged = scores(ensemble.value, ensemble.test)
    return f"{averaged} ({models}; best single model {single}): {place}"


def format_importance(importance: Importance) -> str:
    """Format the importances of the most important dimensions in one line."""
    from sweeps.space.model.domains import short_names

    names = short_names([name for name, _ in importance.shares])
    shares = ", ".join(
        f"{names[name]} {share:.2f}" for name, share in importance.shares[:MOST_IMPORTANT]
    )
    hidden = len(importance.shares) - MOST_IMPORTANT
    if hidden > 0:
        shares += f", and {hidden} more"
    return f"{shares}; by {importance.basis}"


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
        first = t.curve[0]
        last = t.curve[-1]
        lines.append(f"  step {first[0]}: {first[1]:.6g}  step {last[0]}: {last[1]:.6g}")
    lines += pairs((f"final {name}", f"{value:.6g}") for name, value in r.final.items())
    if r.checkpoint and checkpoint is not None:
        place = checkpoint if is_address(checkpoint) else relative_path(Path(checkpoint))
        lines += ["", f"checkpoint    step {r.checkpoint.best_step}, {place}"]
    if r.error:
        lines += ["", r.error.rstrip()]
    return "\n".join(lines)
