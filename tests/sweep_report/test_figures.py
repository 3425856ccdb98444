"""The trials and values in figures, the figures of unusual sweeps, and figures that fail."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.domains import short_names
from sweeps.space.saved_space import save_space
from sweeps.study.live_trial import ProgressUpdate
from sweeps.sweep_report.figures import Drawing, Drawn, Figure, basis_of, best_first, decoded, encoded, thin
from tests.sweep_report.made import RUNGS, space_in, trial, trials

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning", "ignore:Attempting to set identical")


@pytest.fixture
def space(tmp_path):
    return space_in(tmp_path)


def draw(space, made, dimensions=None):
    """Draw the figures as the process does, in this process."""
    import matplotlib

    from sweeps.sweep_report import plots

    matplotlib.use("agg")
    return plots.draw(space.dimensions if dimensions is None else dimensions, "maximize", "acc@5", RUNGS, made)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats()), max_size=300, unique_by=lambda p: p[0]), st.integers(2, 50))
def test_a_thin_curve_keeps_its_ends_and_its_order(points, most):
    kept, finite = thin(points, most), [p for p in points if math.isfinite(p[1])]
    assert len(kept) == min(most, len(finite))
    assert not finite or (kept[0], kept[-1]) == (finite[0], finite[-1])
    at = [finite.index(point) for point in kept]
    assert at == sorted(set(at))


def test_values_are_compared_at_equal_steps(space):
    made = trials(space, 100)
    basis, values = basis_of(made, RUNGS)
    reached = {rung: sum(len(t.curve) >= rung for t in made) for rung in RUNGS}
    assert reached[45] < 30 <= reached[15]
    assert basis == f"the values at step 15, which {reached[15]} trials reached"
    assert values == {t.number: t.curve[14][1] for t in made if len(t.curve) >= 15}
    assert basis_of(made[:5], RUNGS)[1].keys() == {0, 1, 2, 3, 4}  # few: those of the first rung
    assert basis_of(made[:5], ()) == ("the values of 5 trials", {t.number: t.result.value for t in made[:5]})


def test_trials_without_a_finite_value_are_not_ranked(space):
    odd = [trial(space, 0, State.FAIL, ()), trial(space, 1, curve=(math.nan,)), trial(space, 2, curve=(math.inf,))]
    good, better = trial(space, 3, curve=(0.5,)), trial(space, 4, curve=(0.7,))
    assert [t.number for t in best_first([*odd, good, better], minimize=False)] == [4, 3]


def test_short_names_stay_distinct():
    assert short_names(["params.a", "scaling.a", "params.b"]) == {"params.a": "params.a", "scaling.a": "scaling.a", "params.b": "b"}


def test_figures_are_encoded_as_text():
    drawn = Drawn((Figure("A", "<svg/>", "n"), Figure("B", "")), (("eta", 0.75), ("depth", 0.25)), "the values")
    assert decoded(encoded(drawn)) == drawn


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [2, 40, 200])
def test_optuna_draws_every_kind_of_dimension(space, count):
    drawn = draw(space, trials(space, count))
    titles = [f.title for f in drawn.figures if f.title]
    mattered = ["Importances"] if count >= 10 else []
    assert titles == ["History", "Curves", *mattered, "Parallel coordinates", "Slices"]
    assert all(f.image.startswith("<img" if count > 150 else ("<svg", "<img")) for f in drawn.figures), drawn.figures
    assert sum(len(f.image) for f in drawn.figures) < 800_000
    assert bool(drawn.importances) == bool(mattered)
    assert "momentum" in str(drawn.importances) or not mattered


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_unusual_sweeps_get_the_figures_that_can_be_drawn(space):
    nothing = (Figure("Figures", "", "There are no figures, because fewer than two trials have a value."),)
    assert draw(space, []).figures == nothing
    assert draw(space, trials(space, 1)).figures == nothing
    assert draw(space, [trial(space, n, State.FAIL, (), "boom") for n in range(12)]).figures == nothing
    assert draw(space, [trial(space, n, curve=(math.nan,) * 5) for n in range(12)]).figures == nothing
    flat = draw(space, [trial(space, n, curve=(0.5,) * 5) for n in range(12)])
    assert not flat.importances and all(f.image for f in flat.figures)
    assert [f.title for f in draw(space, trials(space, 12), ()).figures] == ["History", "Curves"]


@pytest.mark.integration
def test_a_failed_figure_does_not_affect_the_others(space, monkeypatch):
    from optuna.visualization import matplotlib as plots

    def broken(*args, **how):
        raise RuntimeError("no ink")

    monkeypatch.setattr(plots, "plot_parallel_coordinate", broken)
    shown = {f.title: f for f in draw(space, trials(space, 3)).figures}
    assert shown["Parallel coordinates"] == Figure("Parallel coordinates", "", "This figure could not be drawn: RuntimeError: no ink")
    assert shown["History"].image and shown["Slices"].image


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_a_process_draws_a_sweeps_folder(tmp_path, space):
    folder = tmp_path / "made-1"
    folder.mkdir()
    save_space(folder, space, time.time())
    loop = SearchLoop.open(folder, space)
    for _ in range(3):
        begun = loop.ask()
        reports = tuple(Report(step, {"acc@5": 0.5 + step / 100}, time.time()) for step in range(1, 6))
        loop.report(begun.number, ProgressUpdate(reports, None, None, 1, 1.0))
        loop.tell(begun.number, State.COMPLETE)
    drawn = Drawing(folder).result()
    assert [f.title for f in drawn.figures if f.title] == ["History", "Curves", "Parallel coordinates", "Slices"]
    assert drawn.basis == "the values at step 5, which 3 trials reached"


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_a_process_that_fails_or_takes_too_long_gives_the_reason(tmp_path):
    assert "is not a sweep's folder" in Drawing(tmp_path).result().figures[0].note
    slow = Drawing(tmp_path).result(timeout=0.0).figures[0]
    assert not slow.image and "timed out" in slow.note
