"""Choose and export the final model of a search: a trial, or an average of models."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeps.core import clock
from sweeps.core.errors import INTERRUPTED, InputError, SweepFailed, SweepsError, first_line
from sweeps.core.resources import COSTS
from sweeps.core.text.command_hints import sweep_argument
from sweeps.core.text.shell_text import shell_command
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import State, format_trial_id
from sweeps.space.python.saved_space import roots_of
from sweeps.space.sections.average_problem import prediction_problem
from sweeps.space.sections.choice_rule import choice_rule
from sweeps.study import ranking
from sweeps.study.choice import TrialChoice

if TYPE_CHECKING:
    from sweeps.bundle.ensemble import EnsembleChoice
    from sweeps.bundle.export import Exported, Refitted
    from sweeps.bundle.manifest import Facts
    from sweeps.bundle.trial_predictions import TrialPredictions
    from sweeps.controller.controller import SweepController
    from sweeps.controller.session import SweepSession

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FinalModel:
    """The final model of a search that has ended and has a best trial.

    Attributes:
        controller: The controller of the search.
        session: The session of the search. Its workers are closed before the bundle is written.
        trust: True to read pickles in the sweep's folder that this user's key has not signed.
    """

    controller: SweepController
    session: SweepSession
    trust: bool

    @functools.cached_property
    def _chosen(self) -> tuple[int, tuple[str, ...]]:
        """Number of the trial to export, and notes on the choice, which the study records."""
        notes = self._choose_trial()
        number = self.controller.study_store.winner()
        assert number is not None
        return number, notes

    def _choose_trial(self) -> tuple[str, ...]:
        """Choose the trial to export as `objective.choose` says, and record the choice.

        Without a recorded choice, it is the trial with the best value, also if an average is
        exported. Return notes: why the choice was not made, or not completed.
        """
        controller = self.controller
        rule = choice_rule(controller.space, controller.scheduler.perturbs)
        candidates = self._candidates()
        recorded = controller.study_store.choice
        is_recorded = recorded is not None and recorded.rule == rule and recorded.number is not None
        if rule == "best" or len(candidates) < 2 or is_recorded or self._average[0] is not None:
            return ()
        stage = {"mean": "choosing the trial", "confirmed": "training the best trials again"}
        controller.publish_stage(stage[rule])
        try:
            return self._choose_by_mean(candidates) if rule == "mean" else self._confirm(candidates)
        except Exception as e:  # The best trial is exported in any case.
            if not isinstance(e, SweepsError):
                log.exception("no trial was chosen")
            text = e.problems[0].text if isinstance(e, InputError) else first_line(e)
            return (f"the trial with the best value was chosen, because {rule} failed: {text}",)

    def _candidates(self) -> list[int]:
        """Return the first trials of complete configurations that can be exported, best first."""
        from sweeps.bundle.trial_choice import saved_model

        space, store = self.controller.space, self.controller.study_store
        results = store.configurations().results()

        def can_be_exported(number: int) -> bool:
            has_no_bundle = space.trainer_of(store.trial(number).labels).load is None
            return has_no_bundle or saved_model(store, number) is not None

        ranked = ranking.ranked(results.items(), store.minimize)
        return [n for n in ranked if ranking.tier(results[n]) == 0 and can_be_exported(n)]

    def _choose_by_mean(self, candidates: Sequence[int]) -> tuple[str, ...]:
        """Choose the trial with the best mean of a Gaussian process, and record it."""
        from sweeps.evaluation.value_noise import value_noise
        from sweeps.search.samplers.gp_model import GpModel
        from sweeps.search.samplers.sampler import SamplerContext

        store = self.controller.study_store
        noise = value_noise(store, self._trials)
        if noise is None:
            return ("the trial with the best value was chosen, because the noise is unknown",)
        model = GpModel(SamplerContext(store.space), 1, deterministic_objective=False)
        means = model.final_means(store.study, noise)
        known = [number for number in candidates if number in means]
        if known:
            chosen = min(known, key=means.__getitem__)
            store.record_choice(TrialChoice("mean", len(store.states), chosen))
        return ()

    def _confirm(self, candidates: Sequence[int]) -> tuple[str, ...]:
        """Train the best trials again, choose the one with the best mean, and record it."""
        from sweeps.evaluation.racing import CANDIDATES, MOST_CONFIRMING, round_seconds
        from sweeps.exports.confirmation import confirm_trials

        controller, store = self.controller, self.controller.study_store
        now = clock.monotonic()
        until = controller.time_limits.confirmation_ends(now)
        is_auto = controller.space.objective.choose == "auto"
        if is_auto:
            until = min(until, now + MOST_CONFIRMING * (now - controller.began))
        numbers = candidates[:CANDIDATES]
        results = store.results()
        of_round = sum(results[n].metrics.get("gpu_seconds", 0.0) for n in numbers)
        gpu_seconds = (controller.space.limits.max_gpu_hours or math.inf) * 3600
        gpu_seconds -= store.sweep.budget.gpu_seconds

        def why_stop(rounds: int = 0, racing: Sequence[int] = ()) -> str | None:
            """Return why no round, or not another one, of these trials is trained."""
            if rounds * of_round > gpu_seconds:
                return "`limits.max_gpu_hours` was reached"
            progress = controller.progress
            seconds = [progress.training_seconds(number) for number in racing]
            if clock.monotonic() + round_seconds(seconds, progress.concurrency) > until:
                return "the time was over"
            return controller.why_no_training()

        choice, reason = confirm_trials(self.session, store, numbers, why_stop)
        if reason == INTERRUPTED:
            controller.stop("interrupted", State.RUNNING)  # a resume continues
            return ()
        rounds = max(map(len, choice.values.values())) - 1
        if rounds or reason is None:
            store.record_choice(choice)
        if reason is None or is_auto:
            return ()
        trials = ", ".join(map(format_trial_id, numbers))
        times = f"again only {count_noun(rounds, 'time')}" if rounds else "not again"
        return (f"trials {trials} were trained {times}, because {reason}",)

    @property
    def number(self) -> int:
        """Number of the trial to export. The first access chooses it, which may take a while."""
        return self._chosen[0]

    def export(self) -> Exported:
        """Export the average of models if it is better than the best trial; else the best trial."""
        from sweeps.bundle.trial_facts import describe_recorded

        _, choice_notes = self._chosen
        choice, note = self._average
        more = {"new_rows": self._describe_new_rows(choice)}
        exported = self._export_trained(choice, more)
        exported = dataclasses.replace(exported, notes=(*choice_notes, *exported.notes, *note))
        if choice is None:
            return exported
        best = describe_recorded(self.controller.study_store, self.number)
        return dataclasses.replace(exported, best=best | exported.best)

    @functools.cached_property
    def _trials(self) -> TrialPredictions | None:
        """The predictions that the trials of the search have kept; see `read_trial_predictions`."""
        from sweeps.bundle.trial_predictions import read_trial_predictions

        space = self.controller.space
        if prediction_problem(space.objectives, space.data) is None:
            self.session.await_stopped()  # A trial that stops may write its predictions.
        return read_trial_predictions(self.controller.study_store)

    def _describe_new_rows(self, choice: EnsembleChoice | None) -> Facts:
        """Return the key `new_rows` of the result; see `describe_new_rows`."""
        from sweeps.evaluation.new_rows import describe_new_rows

        store = self.controller.study_store
        seconds = clock.monotonic() - self.controller.began
        return describe_new_rows(store, self._trials, self.number, choice, seconds)

    @functools.cached_property
    def _average(self) -> tuple[EnsembleChoice | None, tuple[str, ...]]:
        """The members of an average that is better than the best trial, or notes: why not."""
        from sweeps.bundle import ensemble

        space = self.controller.space
        if space.bundle.ensemble == 1:
            return None, ()
        if constrained := [c.metric for c in space.constraints if c.metric not in COSTS]:
            metrics = ", ".join(constrained)
            return None, (f"the model is no average: its {metrics} would be unknown",)
        self.controller.publish_stage("choosing an ensemble")
        try:
            store = self.controller.study_store
            choice = ensemble.choose(store, self._trials, space.bundle.ensemble)
        except InputError as e:
            return None, (f"the model is no average: {e.problems[0].text}",)
        except Exception as e:  # The best trial is exported in any case.
            log.exception("no ensemble was chosen")
            return None, (f"the model is no average: {type(e).__name__}: {first_line(e)}",)
        if len(choice.weights) == 1:
            return None, ("no average of models is better than the best trial alone",)
        if self._is_ahead_of(choice):
            text = "the best trial is better, and has no predictions that can be averaged"
            return None, (f"the model is no average: {text}",)
        if choice.gain is None or not choice.gain.is_clear:
            amount = ""
            if choice.gain is not None:
                amount = f" (gain {choice.gain.mean:.3g}, noise {choice.gain.noise:.3g})"
            return None, (
                f"the model is no average: none is clearly better than the best trial{amount}",
            )
        return choice, ()

    def _is_ahead_of(self, choice: EnsembleChoice) -> bool:
        """Return whether the best trial was no candidate, can be exported, and is better."""
        from sweeps.bundle.trial_choice import saved_model

        store = self.controller.study_store
        number = store.winner()
        assert number is not None
        if format_trial_id(number) in choice.facts["candidates"]:
            return False
        if saved_model(store, number) is None:
            return False
        value = store.results()[number].value
        return ranking.beats(value, choice.value, store.minimize)

    def _export_trained(self, choice: EnsembleChoice | None, more: Facts) -> Exported:
        """Export the best trial, or the members of an average.

        If the space asks for it, first train them again on all rows. If this fails, export the
        models of the search, with a note.
        """
        from sweeps.exports import trial_refit

        if not self.controller.space.trains_winner:
            return self._write(choice, {}, more)
        numbers = [self.number]
        if choice is not None:
            numbers = self._members_in_time(choice)
        noun = "members" if choice else "winner"
        self.controller.publish_stage(f"training the {noun} on all rows")
        store = self.controller.study_store
        why_stop = self.controller.why_no_training
        error: SweepsError
        verb = "were" if choice else "was"
        try:
            reason = why_stop()
            if reason is not None:
                raise SweepFailed(reason)
            with trial_refit.train_again(
                self.session, store, numbers, why_stop, some=choice is not None
            ) as refitted:
                exported = self._write(choice, refitted, more)
            if exported.error is None:
                return exported
            error = exported.error
        except SweepsError as e:
            error = e
        log.warning("the %s %s not trained on all rows: %s", noun, verb, error)
        exported = self._write(choice, {}, more)
        if exported.bundle is None and exported.checkpoint is None:
            return exported
        last_line = str(error).strip().splitlines()[-1]
        folder = sweep_argument(self.controller.folder)
        command = f"{shell_command('sweeps')} export {folder} --refit"
        if choice is not None:
            command += f" --ensemble {self.controller.space.bundle.ensemble}"
        note = (
            f"the exported model is that of the search, because the {noun} {verb} not trained on "
            f"all rows ({last_line}); `{command}` does this"
        )
        return dataclasses.replace(exported, notes=(*exported.notes, note))

    def _members_in_time(self, choice: EnsembleChoice) -> list[int]:
        """Return the numbers of the members that can be trained again in time, at least one.

        The members with the largest weights come first.
        """
        numbers = [model.number for model in choice.weights]
        deadline = self.controller.deadline
        if deadline is None:
            return numbers
        seconds = [self.controller.progress.training_seconds(number) for number in numbers]
        return [numbers[i] for i in deadline.members_in_time(seconds, clock.monotonic())]

    def _write(
        self, choice: EnsembleChoice | None, refitted: dict[int, Refitted], more: Facts
    ) -> Exported:
        """Write the bundle of the best trial, or that of an average.

        Args:
            choice: The members of the average; None for the best trial.
            refitted: The models that were trained again, by the number of the trial.
            more: Further facts about the model.
        """
        from sweeps.bundle import export
        from sweeps.bundle.sweep_models import SweepModels

        self.session.close_workers()
        self.controller.publish_stage("exporting the winner")
        space = self.controller.space
        models = SweepModels(self.controller.study_store, space, roots_of(space), self.trust)
        folder = self.controller.folder
        failed = ""
        if choice is not None:
            exported = export.export_ensemble(models, choice, folder, refitted, more)
            if exported.error is None:
                return exported
            failed = f"the model is no average, because its export failed: {exported.error}"
            more = {"new_rows": self._describe_new_rows(None)}
        single = export.export_trial(
            models, self.number, folder, refitted.get(self.number), more=more
        )
        if failed:
            return dataclasses.replace(single, notes=(*single.notes, failed))
        return single
