"""The table of suggestions by meaning: each of its words is not ours, and what it says to write is
there.
"""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import pytest

from sweeps.core.plugins import plugin_registry, references
from sweeps.space.model.domains import DOMAINS
from sweeps.space.model.step_names import BUILTIN_STEPS
from sweeps.space.parse.key_suggestions import SUGGESTIONS, normalize, suggest
from sweeps.space.parse.section_checks import fragments
from sweeps.space.parse.top_level_keys import TOP
from sweeps.space.sections import data_models, search_models, trainer_models
from sweeps.space.sections.built_in_trainers import selecting_options, trainer_names
from sweeps.space.sections.search_sections import scheduler_keys
from sweeps.space.sections.space_sections import SCALING, SECTIONS

MODELS = {
    "trainer": trainer_models.LoopKeys,
    "data": data_models.DataKeys,
    "objective": search_models.Objective,
    "search": search_models.Search,
    "limits": search_models.Limits,
    "checkpoints": search_models.Checkpoints,
    "bundle": search_models.BundleKeys,
    "runtime_env": trainer_models.RuntimeEnv,
}
FIELDS = {place: tuple(fragments(model)) for place, model in MODELS.items()} | {
    "scheduler": scheduler_keys()
}
FIELDS["trainer"] += tuple(selecting_options())
VALID = {
    **FIELDS,
    **{step: BUILTIN_STEPS[step] for step in SUGGESTIONS if step in BUILTIN_STEPS},
    "file": TOP,
    "space": SECTIONS,
    "scaling": SCALING,
    "step": (*BUILTIN_STEPS, "none"),
    "domain": DOMAINS,
    "trainer.name": tuple(trainer_names()),
    "SimpleImputer.strategy": BUILTIN_STEPS["SimpleImputer"]["strategy"]["enum"],
    "objective.goal": get_args(get_type_hints(search_models.Objective)["goal"]),
    "search.algorithm": ("auto", *plugin_registry.names("sampler")),
    "scheduler.name": plugin_registry.names("scheduler"),
}
ENTRIES = [
    pytest.param(place, name, word, id=f"{place}: {name}")
    for place, words in SUGGESTIONS.items()
    for name, word in words.items()
]


@pytest.mark.parametrize(("place", "name", "word"), ENTRIES)
def test_every_suggestion_leads_to_something_that_is_there(
    place: str, name: str, word: str
) -> None:
    valid = VALID[place]
    assert name not in valid, "it is a word of ours"
    if " " not in word:
        assert word in valid
    for ref in re.findall(r"sklearn[\w.]*:\w+", word):
        assert references.problem(ref) is None
    for section, inside in re.findall(r"`(\w+): \{(\w+)", word):
        known = (
            FIELDS.get(section)
            or {
                "space": SECTIONS,
                "scaling": SCALING,
                "resources_per_worker": ("CPU", "GPU"),
                "options": ("n_startup_trials",),
            }[section]
        )
        assert inside in known
    for step in re.findall(r"`([A-Z]\w+)`", word):
        assert step in BUILTIN_STEPS


def test_no_word_is_there_twice() -> None:
    for words in SUGGESTIONS.values():
        names = [normalize(name) for name in words]
        assert len(names) == len(set(names))


def test_case_and_dashes_do_not_count_and_typos_have_the_nearest_name() -> None:
    assert (
        "`StandardScaler`"
        in suggest("step", "scaler", BUILTIN_STEPS)
        == suggest("step", "Scaler", BUILTIN_STEPS)
    )
    assert "`StandardScaler`" in suggest("step", "standard_scaler", BUILTIN_STEPS)
    assert "`StandardScaler`" in suggest("step", "StandardScalr", BUILTIN_STEPS)
    assert suggest("nowhere", "zzz", ["a", "b"]) == "valid: a, b"


@pytest.mark.parametrize(
    ("text", "place", "key", "word"),
    [
        ("space: {preprocessor: Scaler}", "4:23", "preprocessor", "StandardScaler"),
        ("space: {preprocessor: FunctionTransformer}", "4:23", "preprocessor", "module:function"),
        (
            "space: {preprocessor: {OrdinalEncoder: {unknown_value: -1}}}",
            "4:41",
            "preprocessor.OrdinalEncoder.unknown_value",
            "use_encoded_value",
        ),
        (
            "space: {scaling: {num_workers: [1, 2]}}",
            "4:32",
            "scaling.num_workers",
            "{choice: [1, 2]}",
        ),
        (
            "space: {scaling: {use_gpu: [true, false]}}",
            "4:28",
            "scaling.use_gpu",
            "{choice: [true, false]}",
        ),
        ("space: {lr: 0.1}", "4:9", "space.lr", "params"),
        ("space: {params: {}}\nn_trials: 3", "5:1", "n_trials", "limits: {max_trials"),
        ("space: {params: {}}\nmetric: loss", "5:1", "metric", "objective"),
        ("space: {params: {}}\nmax_trials: 3", "5:1", "max_trials", "limits"),
        ("space: {params: {}}\npruner: median", "5:1", "pruner", "scheduler"),
        ("space: {params: {}}\nearly_stopping: 3", "5:1", "early_stopping", "asha"),
        ("space: {params: {}}\nsearch: {sampler: tpe}", "5:10", "search.sampler", "algorithm"),
        ("space: {params: {}}\nsearch: {algorithm: bayes}", "5:21", "search.algorithm", "gp"),
        ("space: {params: {}}\nscheduler: {name: ASHAScheduler}", "5:19", "scheduler.name", "asha"),
        (
            "space: {params: {}}\nlimits: {num_samples: 3}",
            "5:10",
            "limits.num_samples",
            "max_trials",
        ),
    ],
)
def test_a_word_of_another_tool_is_answered_by_its_meaning(
    lines: Any, text: str, place: str, key: str, word: str
) -> None:
    head = (
        "trainer: xgboost\ndata: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: minimize}\n"
    )
    (line,) = lines(f"{head}{text}\n")
    assert line.startswith(f"{place}: {key}: ") and word in line


def test_other_words_for_the_goal_and_a_trainer(lines: Any) -> None:
    body = (
        "data: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: min}\nspace: {params: {}}\n"
    )
    trainer, goal = lines(f"trainer: jax\n{body}")
    assert trainer.startswith("1:10: trainer: ") and "backend: jax" in trainer
    assert goal.startswith("3:30: objective.goal: ") and "`minimize`" in goal


def test_sources_and_rows_to_try(lines: Any) -> None:
    head = "trainer: xgboost\nobjective: {metric: m, goal: minimize}\nspace: {params: {}}\n"
    train, rows = lines(
        head + "data: {train: [a.csv, b.csv], valid: 0.2, label: y, rows: [0.1, 1]}\n"
    )
    assert "data.train: " in train and "{choice: [a.csv, b.csv]}" in train
    assert "data.rows: " in rows and "{choice: [0.1, 1]}" in rows
