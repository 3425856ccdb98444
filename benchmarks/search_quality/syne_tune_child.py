"""Run a scheduler of Syne Tune in its own environment. Commands and answers are lines of JSON."""

from __future__ import annotations

import datetime
import json
import logging
import math
import sys
from typing import Any

out, sys.stdout = sys.stdout, sys.stderr  # Syne Tune prints a greeting when it is imported.

from syne_tune.backend.trial_status import Trial  # noqa: E402
from syne_tune.config_space import (  # noqa: E402
    choice,
    lograndint,
    loguniform,
    ordinal,
    randint,
    uniform,
)
from syne_tune.optimizer.baselines import ASHA, MOBSTER, PASHA, DyHPO  # noqa: E402

logging.disable(logging.CRITICAL)


def space_of(axes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    domains = {}
    for name, a in axes.items():
        low, high = a["low"], a["high"]
        if a["kind"] == "choice":
            domains[name] = choice(list(range(int(high) + 1)))
        elif a["kind"] == "ordered":
            domains[name] = ordinal(a["options"])
        elif a["kind"] == "int":
            domains[name] = (lograndint if a["log"] else randint)(int(low), int(high))
        else:
            domains[name] = (loguniform if a["log"] else uniform)(low, high)
    return domains


def main() -> None:
    request = json.loads(sys.argv[1])
    space = space_of(request["axes"])
    more = {
        "metric": "value",
        "mode": "min",
        "resource_attr": "step",
        "max_t": request["steps"],
        "grace_period": 1,
        "reduction_factor": 3,
    }
    kind = {"pasha": PASHA, "mobster": MOBSTER, "asha": ASHA, "dyhpo": DyHPO}[request["method"]]
    # With more than 150 observations, the kernel is fitted only for every tenth suggestion, as Syne
    # Tune's documentation advises for speed.
    skip = {"opt_skip_period": 10} if kind is MOBSTER else {}
    scheduler = kind(
        space, random_seed=request["seed"], search_options={"debug_log": False, **skip}, **more
    )
    trials: dict[int, Trial] = {}
    last: dict[int, dict[str, Any]] = {}
    started = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["verb"] == "begin":
            suggestion = scheduler.suggest(started)
            if (
                suggestion is None
            ):  # All configurations of a finite space were tried, and no trial can be resumed.
                number = None
            elif suggestion.spawn_new_trial_id:
                number = started
                trials[number] = Trial(number, suggestion.config, datetime.datetime.now())
                scheduler.on_trial_add(trials[number])
                started += 1
            else:
                number = suggestion.checkpoint_trial_id
                if suggestion.config is not None:
                    trials[number] = Trial(number, suggestion.config, datetime.datetime.now())
            answer: Any = (
                None
                if number is None
                else [number, {name: trials[number].config[name] for name in space}]
            )
        elif asked["verb"] == "report":
            number = asked["trial"]
            last[number] = {
                "value": asked["value"] if math.isfinite(asked["value"]) else 1e9,
                "step": asked["step"],
            }
            if asked["step"] == request["steps"]:
                answer = True
            else:
                answer = scheduler.on_trial_result(trials[number], last[number]) == "CONTINUE"
                if not answer:
                    scheduler.on_trial_remove(trials[number])
        elif asked["verb"] == "fail":
            scheduler.on_trial_error(trials[asked["trial"]])
            answer = None
        else:
            scheduler.on_trial_complete(trials[asked["trial"]], last[asked["trial"]])
            answer = None
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
