"""Write `README.md` of an ensemble's bundle: the models, their weights and their scores. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sweeps.bundle.manifest import Manifest
from sweeps.core.metrics import base_name


def ensemble_card(manifest: Manifest) -> str:
    """Return the text of `README.md`, as Markdown.

    Args:
        manifest: the manifest of an ensemble.
    """
    facts, about = manifest.training, manifest.training["ensemble"]
    metric, count, total = base_name(facts["metric"]), len(manifest.members), sum(m.weight for m in manifest.members)
    single = about["single"]
    scores = [["this ensemble", _number(facts["value"]), _number(facts["test"])]]
    scores += [[f"the best single model, trial {single['trial']}", _number(single["value"]), _number(single["test"])]]
    members = [
        [m.trial, f"{m.weight} of {total}", _number(m.training["value"]), _number(m.training["test"]), *_configuration(m.training)]
        for m in manifest.members
    ]
    parts = [
        f"# {facts['sweep']}: ensemble of {count} model{'s' * (count != 1)}",
        "This folder is one model: it averages the predictions of its members. Each member has its own fitted preprocessor.",
        _table(["", f"{metric} on valid", "on test"], scores),
        "## Members",
        _table(["trial", "weight", f"{metric} on valid", "on test", "preprocessor", "params"], members),
        f"The members were chosen on the {about['rows']} rows of valid, in {about['rounds']} rounds, from {len(about['candidates'])} "
        "models of the sweep. Each round added the model with which the average scored best (Caruana et al., 2004). The choice looked at "
        "valid, so the scores on valid are optimistic. The scores on test are not.",
        "## Use",
        '```python\nimport sweeps\n\nbundle = sweeps.load_bundle(".")\nbundle.predict(rows)\n```',
        "`mlflow.pyfunc.load_model` loads the folder, too. `manifest.json` says how each member was trained.",
    ]
    return "\n\n".join(parts) + "\n"


def _configuration(training: dict[str, Any]) -> tuple[str, str]:
    """Return the preprocessor and the parameters of a member, as cells of a table."""
    params = json.dumps(training["params"], ensure_ascii=False)
    return tuple(f"`{text.replace('`', ' ').replace('|', '/')}`" for text in (training["preprocessor"], params))  # type: ignore[return-value]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
