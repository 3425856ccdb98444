"""Text about the choice of the exported trial."""

from sweeps.core.text.choice_text import choice_text

BEST = {"best": "0002", "best_value": 0.25}


def test_a_choice_names_its_rule_and_the_best_value() -> None:
    mean = {"rule": "mean", **BEST, "values": {}}
    text = "chosen by the mean of a model of all trials"
    assert choice_text("0002", mean) == f"{text}; it has the best value, too"
    more = "; trial 0002 has the best value in the search, 0.25"
    assert choice_text("0001", mean) == text + more
    values = {"0001": [9.0, 0.5, 1.0], "0002": [0.25, 1.0, 2.0], "0003": [9.0, None]}
    confirmed = {"rule": "confirmed", **BEST, "values": values}
    text = "confirmed among 3 trials in 2 further trainings, with a mean of 0.75 in them"
    assert choice_text("0001", confirmed) == f"{text}{more}, and a mean of 1.5 in them"
    assert choice_text("0002", confirmed) == (
        text.replace("0.75", "1.5") + "; it has the best value, too"
    )
    failed = {**confirmed, "values": {**values, "0002": [0.25, None]}}
    assert choice_text("0001", failed) == text + more
    assert choice_text("0001", {**confirmed, "values": {"0001": [9.0], "0002": [0.25]}}) == (
        f"confirmed among 2 trials in 0 further trainings{more}"
    )
