"""Check that the sections of a space file fit each other and the trainer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweeps.core.resources import Shape, jax_connects
from sweeps.core.text.texts import count_noun
from sweeps.space.model.templates import Sections, walk
from sweeps.space.sections.built_in_trainers import trainer_definitions
from sweeps.space.sections.data_models import DataSpec
from sweeps.space.sections.ingest_checks import row_obstacles, stream_obstacles
from sweeps.space.sections.search_sections import SearchSections, perturbs
from sweeps.space.sections.trainer_definition import NAME
from sweeps.space.sections.trainer_models import TrainerSpec
from sweeps.space.sections.trainer_section import TrainerSection

from .nodes import Node


@dataclass(frozen=True)
class ConsistencyChecks:
    """Checks of several sections together.

    The methods add problems.

    Attributes:
        root: The parsed file, with the overrides.
        trainer_section: The parser of the section `trainer`, which has the trainer's definition.
        trainer: The parsed section `trainer`; None if it has a problem.
        search_sections: The parsed sections about the search.
    """

    root: Node
    trainer_section: TrainerSection
    trainer: TrainerSpec | None
    search_sections: SearchSections

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
        """Add a problem for each reason why the winner cannot be trained again on all rows."""
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

    def check_ingest(self, data: DataSpec | None, sections: Sections) -> None:
        """Add a problem for each key that does not fit streamed data or a count of rows."""
        scheduler = self.search_sections.scheduler
        if scheduler.counts_rows:
            for key, text in row_obstacles(data, sections, scheduler):
                self.root.wrong_inside(key, text)
        if data is None or self.trainer is None or data.ingest != "stream":
            return
        definition = self.trainer_section.definition
        for key, text in stream_obstacles(data, sections, self.trainer, definition, scheduler):
            self.root.wrong_inside(key, f"{text}; this file has `data.ingest: stream`")

    def check_workers(self, shapes: Sequence[Shape]) -> None:
        """Add a problem if the trainer cannot train on the workers of a shape.

        Also add a problem if Ray's backend for JAX cannot connect the workers.
        """
        limit = self.trainer_section.definition.max_workers
        most = max((shape.most or shape.workers for shape in shapes), default=1)
        if limit is not None and most > limit:
            text = (
                f"trains on at most {count_noun(limit, 'worker')}, but the space has trials with "
                f"{most} workers"
            )
            self.root.wrong_inside(
                "space.scaling", f"`{self.trainer_section.name}` {text}; set num_workers to {limit}"
            )
        if self.trainer is None or self.trainer.backend != "jax":
            return
        unconnected = [shape for shape in shapes if not jax_connects(shape)]
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
        if self.trainer is None:
            return
        definition = self.trainer_section.definition
        if definition.needs_label and not self.trainer_section.started:
            self._check_label()
        if not definition.weights:
            self._refuse_weights()
        if not definition.several_labels:
            self._refuse_several_labels()

    def _check_label(self) -> None:
        """Add a problem if the file names no label."""
        data = self.root.get("data")
        label = self.root.find("data.label")
        if label.value is None and (data.value is None or data.is_map):
            text = "give the name of the column to predict"
            label.wrong(f"is required by `{self.trainer_section.name}`; {text}", data.at)

    def _refuse_weights(self) -> None:
        """Add a problem for each key that weights rows."""
        for key in ("weight", "class_weight"):
            weights = self.root.find(f"data.{key}")
            if weights.value is not None:
                text = (
                    f"`{self.trainer_section.name}` does not use weights; leave this key out, or "
                    "choose a trainer that uses them"
                )
                weights.wrong_key(text + self._trainers_with("weights"))

    def _refuse_several_labels(self) -> None:
        """Add a problem if the label has several columns."""
        label = self.root.find("data.label")
        if label.is_list and len(label.value) > 1:
            text = (
                f"`{self.trainer_section.name}` predicts one column, but the label has "
                f"{len(label.value)}; name one column, or choose a trainer that predicts several"
            )
            label.wrong(text + self._trainers_with("several_labels"))

    def _trainers_with(self, key: str) -> str:
        """Return the end of a message: the trainers whose definition has a key.

        The end also says how a loop of the user's own gets the key.
        """
        definitions = trainer_definitions()
        names = [name for name, definition in definitions.items() if getattr(definition, key)]
        text = f": {', '.join(names)}"
        if self.trainer is not None and self.trainer.name is None:
            text += f', or write `"{key}": True` into `{NAME}` if your loop does this'
        return text

    def with_queries(self, data: DataSpec, params: Sections) -> DataSpec:
        """Return the data for a trainer that ranks rows.

        With a ranking objective, the task is a regression: the model predicts scores.

        Add a problem for each ranking objective if the rows have no groups, or have weights.
        """
        ranking = self.trainer_section.definition.ranking
        if not ranking:
            return data
        for key, value in params.items():
            texts = [part for part in walk(value) if isinstance(part, str)]
            for text in texts:
                if not re.fullmatch(ranking, text):
                    continue
                data = replace(data, task=data.task or "regression")
                if data.group is None or data.weight_columns:
                    rule = (
                        "needs `data.group`, the column of groups whose rows it ranks, such as a "
                        "query, and no `data.weight`"
                    )
                    self.root.wrong_inside(f"space.params.{key}", f"`{text}` {rule}")
        return replace(data, queries=bool(data.group))
