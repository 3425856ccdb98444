"""Write `README.md` of a bundle: what the model is, how to use it, and how it was made.

Pure functions, no I/O.
"""

import json
from collections.abc import Iterator, Sequence

from pydantic import JsonValue
from rich.filesize import decimal

from sweeps.core.label_columns import label_columns
from sweeps.core.metrics import base_name
from sweeps.core.text.choice_text import choice_text
from sweeps.core.text.markdown_text import cell, code, table
from sweeps.core.text.new_rows_text import new_rows_sentences
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import refit_rows_text

from .manifest import Manifest, Member, weights_of

# The largest number of columns, classes or packages that are listed by name.
MAX_LISTED = 50


def model_card(manifest: Manifest, size: int | None = None) -> str:
    """Return the text of `README.md`, as Markdown.

    Args:
        manifest: The manifest of a single model or of an ensemble.
        size: Size of the bundle in bytes; None if it is not known.
    """
    parts = [
        *(_ensemble(manifest) if "ensemble" in manifest.training else _single(manifest)),
        *_cost(manifest, size),
        *_use(manifest),
        *_versions(manifest),
    ]
    return "\n\n".join(parts) + "\n"


def _single(manifest: Manifest) -> Iterator[str]:
    """Yield the paragraphs about a single model: its scores, and how it was trained."""
    facts = manifest.training
    names = [str(facts["sweep"])] if "sweep" in facts else []
    if "trial" in facts:
        names.append(f"trial {facts['trial']}")
    yield f"# {cell(': '.join(names)) or 'A model'}"
    yield (
        "This folder is one model with its fitted preprocessor. It takes raw rows and returns "
        "predictions."
    )
    values = facts.get("values") or {}  # values of several objectives, by metric
    if not values and "metric" in facts:
        values = {facts["metric"]: facts.get("value")}
    rows = [[_code_cell(name), _number(value)] for name, value in values.items()]
    if facts.get("test") is not None and "metric" in facts:
        rows.append([f"{_code_cell(base_name(facts['metric']))} on test", _number(facts["test"])])
    settings = {
        key: facts[key]
        for key in ("trainer", "preprocessor", "params", "data", "scaling", "seed")
        if facts.get(key) is not None
    }
    rows += [[key, _code_cell(value)] for key, value in settings.items()]
    if facts.get("best_step") is not None and not manifest.members:
        rows.append(["step", str(facts["best_step"])])
    if manifest.members:
        rows.append(["models", f"the average of the models of {len(manifest.members)} folds"])
    if refit := facts.get("refit"):
        # A model that was trained again on test as well cannot be scored on test.
        scores = "the scores are" if "test" in refit["on"] else "the objective's value is"
        rows.append(["trained again on", f"{refit_rows_text(refit)}; {scores} from before"])
    if choice := facts.get("choice"):
        rows.append(["choice", choice_text(facts["trial"], choice)])
    rows.append(["exported", manifest.created])
    yield table(["", ""], rows)
    yield from _new_rows(manifest)


def _ensemble(manifest: Manifest) -> Iterator[str]:
    """Yield the paragraphs about an ensemble: the models, their weights and their scores."""
    facts = manifest.training
    about = facts["ensemble"]
    metric = _code_cell(base_name(facts["metric"]))
    weights = weights_of(manifest.members)
    total = sum(weights.values())
    single = about["single"]
    yield f"# {cell(facts['sweep'])}: ensemble of {count_noun(len(weights), 'trial')}"
    yield (
        "This folder is one model: it averages the predictions of its members. Each member has "
        "its own fitted preprocessor."
    )
    scored = {"this ensemble": facts, f"the best single model, trial {single['trial']}": single}
    scores = [[name, _number(s["value"]), _number(s["test"])] for name, s in scored.items()]
    yield table(["", f"{metric} on valid", "on test"], scores)
    yield from _new_rows(manifest)
    yield "## Members"
    first_models = {member.trial: member for member in reversed(manifest.members)}
    members = [
        [
            trial,
            f"{weight} of {total}",
            _trained(member, manifest),
            _number(member.training["value"]),
            _number(member.training["test"]),
            _code_cell(member.training["preprocessor"]),
            _code_cell(member.training["params"]),
        ]
        for trial, weight in weights.items()
        for member in [first_models[trial]]
    ]
    yield table(
        [
            "trial",
            "weight",
            "trained on",
            f"{metric} on valid",
            "on test",
            "preprocessor",
            "params",
        ],
        members,
    )
    yield (
        f"The members were chosen on the {about['rows']} rows of valid, in {about['rounds']} "
        f"rounds, from {len(about['candidates'])} "
        "models of the sweep. Each round added the model with which the average scored best "
        "(Caruana et al., 2004). The choice looked at valid, so the scores on valid are optimistic."
        f"{' The scores on test are not.' if facts['test'] is not None else ''}"
    )


def _new_rows(manifest: Manifest) -> Iterator[str]:
    """Yield a paragraph about the score on new rows, if it is known."""
    if (facts := manifest.training.get("new_rows")) is not None:
        yield new_rows_sentences(facts)
        if manifest.training.get("refit"):
            yield "This is the score of the model before it was trained again on more rows."


def _trained(member: Member, manifest: Manifest) -> str:
    """Return a short text about the rows on which the models of a member were trained."""
    if (refit := member.training.get("refit")) is not None:
        return refit_rows_text(refit)
    if member.fold is not None:
        count = sum(other.trial == member.trial for other in manifest.members)
        return f"{count} folds"
    return "train"


def _cost(manifest: Manifest, size: int | None) -> Iterator[str]:
    """Yield a paragraph about the size and the speed of the bundle, as far as they are known."""
    if manifest.rows_per_second is None or size is None:
        return
    rounded = float(f"{manifest.rows_per_second:.2g}")
    yield (
        f"The bundle has {decimal(size)}, and predicts {rounded:,.0f} rows a second on the machine "
        "that wrote it."
    )


def _use(manifest: Manifest) -> Iterator[str]:
    """Yield the paragraphs about loading and serving the bundle, its input and its output."""
    yield "## Use"
    yield "```bash\nsweeps predict . rows.csv\nsweeps serve .\n```"
    yield (
        '```python\nimport sweeps\n\nbundle = sweeps.load_bundle(".")\n'
        "bundle.predict(rows)  # a pandas.DataFrame of raw rows\n"
        "```"
    )
    yield (
        "`mlflow.pyfunc.load_model` loads the folder too, without an installation of sweeps. "
        "Loading a bundle runs code that is inside it. "
        "Load only bundles that you trust."
    )
    if manifest.columns:
        columns = [f"{_code(column.name)} ({column.type})" for column in manifest.columns]
        listed = _listed(columns, "`manifest.json`")
        yield f"Columns of the rows: {listed}. Other columns are ignored."
    if manifest.label is not None:
        labels = " and ".join(_code(name) for name in label_columns(manifest.label))
        description = ", numbers" if manifest.task == "regression" else ""
        if manifest.classes is not None:
            classes = [_code(value) for value in manifest.classes]
            description = f", one of these classes: {_listed(classes, '`manifest.json`')}"
        yield f"The model predicts {labels}{description}."


def _versions(manifest: Manifest) -> Iterator[str]:
    """Yield the paragraphs about versions and the origin of the model."""
    facts = manifest.training
    yield "## Versions"
    needed = _listed([_code(each) for each in manifest.requirements], "`requirements.txt`")
    yield (
        f"The bundle needs these packages: {needed}. It was written with Python {manifest.python}."
    )
    origin = {
        "sweeps": (facts.get("versions") or {}).get("sweeps"),
        "commit": (facts.get("git") or {}).get("commit"),
    }
    known = [f"{name} {_code(value)}" for name, value in origin.items() if value]
    origin_text = f"Made with {' and '.join(known)}. " if known else ""
    yield (
        f"{origin_text}`manifest.json` has the space file, the fingerprint of the data, and the "
        "SHA-256 of every file."
    )


def _listed(items: Sequence[str], place: str) -> str:
    """Return items in one line, at most `MAX_LISTED` of them.

    `place` names the file that has all of them.
    """
    rest = [f"and {len(items) - MAX_LISTED} others, see {place}"] if len(items) > MAX_LISTED else []
    return ", ".join([*items[:MAX_LISTED], *rest])


def _code(value: JsonValue) -> str:
    """Return a value as code in one line."""
    return code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _code_cell(value: JsonValue) -> str:
    """Return a value as code in a cell of a table."""
    return _code(value).replace("|", "\\|")


def _number(value: JsonValue) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else "-"
