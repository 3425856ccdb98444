"""Check that the sections of a space file fit each other and the trainer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeps.core.resources import Shape, jax_connects
from sweeps.core.text.texts import count_noun
from sweeps.space.model.templates import Sections, params_of, walk
from sweeps.space.sections.built_in_trainers import trainer_definitions
from sweeps.space.sections.data_models import DataSpec
from sweeps.space.sections.ingest_checks import row_obstacles, stream_obstacles
from sweeps.space.sections.search_sections import SearchSections, perturbs
from sweeps.space.sections.trainer_definition import NAME
from sweeps.space.sections.trainer_spec import TrainerSpec

from .nodes import Node


@dataclass(frozen=True)
class ConsistencyChecks:
    """Checks of several sections together.

    The methods add problems.

    Attributes:
        root: The parsed file, with the overrides.
        trainers: The trainers by label, without those that have a problem.
        search_sections: The parsed sections about the search.
        started: True for the file of a sweep that has already started.
    """

    root: Node
    trainers: Mapping[str, TrainerSpec]
    search_sections: SearchSections
    started: bool

    def check_scheduler(self, data: DataSpec | None) -> None:
        """Add a problem if the scheduler compares steps of different trainers.

        After one tree and after one epoch, two models say nothing about each other.
        """
        scheduler = self.search_sections.scheduler
        if len(self.trainers) < 2 or scheduler.name == "none":
            return
        if scheduler.counts_rows or (data is not None and data.folds):
            return
        self.root.wrong_inside(
            "scheduler.name",
            f"{scheduler.name} compares trials at the same step, and steps of different trainers "
            "cannot be compared; add `resource: data.rows`, use folds in `data.valid`, or write "
            "`scheduler: {name: none}`",
        )

    def check_environments(self) -> None:
        """Add a problem if two trainers set an environment variable to different values.

        Trials of all trainers run in the same worker processes.
        """
        first: dict[str, TrainerSpec] = {}
        for trainer in self.trainers.values():
            for name, value in trainer.environment.items():
                other = first.setdefault(name, trainer)
                if other.environment[name] != value:
                    text = (
                        f"sets {name} to `{value}`, but `{other.title}` sets it to "
                        f"`{other.environment[name]}`, and both run in the same processes; give "
                        "both the same value, or run two sweeps"
                    )
                    self.root.wrong_inside(trainer.path, f"`{trainer.title}` {text}")

    def check_folds(self, data: DataSpec | None) -> None:
        """Add a problem if the scheduler does not fit a cross-validation.

        In a cross-validation, each step of a trial is one fold.
        """
        scheduler = self.search_sections.scheduler
        folds = data.folds if data else 0
        if not folds:
            return
        if perturbs(scheduler):
            self.root.wrong_inside(
                "scheduler.name",
                f"{scheduler.name} copies models between trials, but in a cross-validation a "
                "trial has a model for each fold; choose another scheduler",
            )
        elif scheduler.max_t is not None and scheduler.max_t > folds:
            text = (
                f"must be at most {folds}, because each step of a trial is one of the {folds} "
                f"folds of data.valid, got {scheduler.max_t}"
            )
            self.root.wrong_inside("scheduler.max_t", text)

    def check_bundle(self, data: DataSpec | None) -> None:
        """Add a problem for each reason why the bundle cannot have the models that it asks for."""
        bundle = self.search_sections.bundle
        if bundle.ensemble > 1 and data is not None and self.trainers:
            # Not at the top: the module imports the metrics, and most files have no average.
            from sweeps.space.sections.average_problem import average_problem

            objectives = self.search_sections.objectives
            problem = average_problem(objectives, data, self.trainers.values())
            checkpoints = self.search_sections.checkpoints
            for key in ("predictions", "top"):
                kept = getattr(checkpoints, key)
                if problem is None and kept is not None and kept < 2:
                    problem = (
                        "averages models of several trials, chosen by their predictions for valid; "
                        f"`checkpoints.{key}` is {kept}, but must be at least 2"
                    )
            if problem is not None:
                self.root.wrong_inside("bundle.ensemble", problem)
        if self.search_sections.bundle.train_on == "train":
            return
        obstacles = {
            "needs the section `data`, because a loop that reads its own data chooses the rows": (
                data is not None and not data.is_named
            ),
            "needs a single objective, because several objectives have no single winner": (
                len(self.search_sections.objectives) > 1
            ),
            "does not work under pbt, whose trials copy checkpoints of other trials": (
                perturbs(self.search_sections.scheduler)
            ),
        }
        for text, is_obstacle in obstacles.items():
            if is_obstacle:
                self.root.wrong_inside("bundle.train_on", f"`all` {text}; leave the section out")

    def check_choice(self, data: DataSpec | None) -> None:
        """Add a problem if the winner cannot be chosen as `objective.choose` says."""
        sections = self.search_sections
        if data is None or all(each.choose == "best" for each in sections.objectives):
            return
        from sweeps.space.sections.choice_rule import choice_problem  # for few files

        problem = choice_problem(
            sections.objectives, data, sections.repeats, perturbs(sections.scheduler)
        )
        if problem is not None:
            several = self.root.get("objective").is_list
            self.root.wrong_inside("objective" if several else "objective.choose", problem)

    def check_ingest(self, data: DataSpec | None, sections: Sections) -> None:
        """Add a problem for each key that does not fit streamed data or a count of rows."""
        scheduler = self.search_sections.scheduler
        if scheduler.counts_rows:
            for key, text in row_obstacles(data, sections, scheduler):
                self.root.wrong_inside(key, text)
        if data is None or data.ingest != "stream":
            return
        trainers = self.trainers.values()
        for key, text in stream_obstacles(data, sections, trainers, scheduler):
            self.root.wrong_inside(key, f"{text}; this file has `data.ingest: stream`")

    def check_workers(self, shapes: Sequence[Shape]) -> None:
        """Add a problem if the trainer cannot train on the workers of a shape.

        Also add a problem if Ray's backend for JAX cannot connect the workers.
        """
        most = max((shape.most or shape.workers for shape in shapes), default=1)
        for trainer in self.trainers.values():
            limit = trainer.definition.max_workers
            if limit is not None and most > limit:
                text = (
                    f"trains on at most {count_noun(limit, 'worker')}, but the space has trials "
                    f"with {most} workers"
                )
                self.root.wrong_inside(
                    "space.scaling", f"`{trainer.title}` {text}; set num_workers to {limit}"
                )
        unconnected = [
            shape for shape in shapes if shape.backend == "jax" and not jax_connects(shape)
        ]
        if unconnected:
            text = (
                "Ray's backend for `jax` connects workers only if each worker has whole GPUs or "
                f"TPUs, but the shape {unconnected[0]} has none"
            )
            self.root.wrong_inside(
                "space.scaling",
                f"{text}; give each worker a GPU with `use_gpu: true`, or set num_workers to 1",
            )

    def check_columns(self) -> None:
        """Add a problem if the trainer cannot use the columns that `data` names, or lacks one."""
        for trainer in self.trainers.values():
            definition = trainer.definition
            if definition.needs_label and not self.started:
                self._check_label(trainer)
            if not definition.weights:
                self._refuse_weights(trainer)
            if not definition.several_labels:
                self._refuse_several_labels(trainer)

    def _check_label(self, trainer: TrainerSpec) -> None:
        """Add a problem if the file names no label."""
        data = self.root.get("data")
        label = self.root.find("data.label")
        if label.value is None and (data.value is None or data.is_map):
            text = "give the name of the column to predict"
            label.wrong(f"is required by `{trainer.title}`; {text}", data.at)

    def _refuse_weights(self, trainer: TrainerSpec) -> None:
        """Add a problem for each key that weights rows."""
        for key in ("weight", "class_weight"):
            weights = self.root.find(f"data.{key}")
            if weights.value is not None:
                text = (
                    f"`{trainer.title}` does not use weights; leave this key out, or choose a "
                    "trainer that uses them"
                )
                weights.wrong_key(text + _trainers_with("weights", trainer))

    def _refuse_several_labels(self, trainer: TrainerSpec) -> None:
        """Add a problem if the label has several columns."""
        label = self.root.find("data.label")
        if label.is_list and len(label.value) > 1:
            text = (
                f"`{trainer.title}` predicts one column, but the label has "
                f"{len(label.value)}; name one column, or choose a trainer that predicts several"
            )
            label.wrong(text + _trainers_with("several_labels", trainer))

    def with_queries(self, data: DataSpec, sections: Sections) -> DataSpec:
        """Return the data for a trainer that ranks rows.

        With a ranking objective, the task is a regression: the model predicts scores.

        Add a problem for each ranking objective if the rows have no groups, or have weights.
        """
        ranking = [each for each in self.trainers.values() if each.definition.ranking]
        for trainer in ranking:
            params = params_of(sections, trainer.label)
            for key, value in params.items() if isinstance(params, dict) else ():
                texts = [part for part in walk(value) if isinstance(part, str)]
                for text in texts:
                    if not re.fullmatch(trainer.definition.ranking, text):
                        continue
                    data = replace(data, task=data.task or "regression")
                    if data.group is None or data.weight_columns:
                        rule = (
                            "needs `data.group`, the column of groups whose rows it ranks, such as "
                            "a query, and no `data.weight`"
                        )
                        place = f"space.{trainer.params_key}.{key}"
                        self.root.wrong_inside(place, f"`{text}` {rule}")
        return replace(data, queries=bool(data.group)) if ranking else data


def _trainers_with(key: str, trainer: TrainerSpec) -> str:
    """Return the end of a message: the built-in trainers whose definition has a key.

    If `trainer` is a user's own loop, the end also says how it gets the key.
    """
    definitions = trainer_definitions()
    names = [name for name, definition in definitions.items() if getattr(definition, key)]
    text = f": {', '.join(names)}"
    if trainer.name is None:
        text += f', or write `"{key}": True` into `{NAME}` if your loop does this'
    return text
