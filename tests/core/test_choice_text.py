"""Text about the choice of the exported trial."""

from sweeps.core.text.choice_text import choice_text

BEST = {"trial": "0002", "value": 0.25}


def test_a_choice_names_its_rule_and_the_best_value() -> None:
    mean = {"rule": "mean", "best": BEST, "values": {}}
    assert choice_text("0002", mean).startswith("it has the best value")
    text = "chosen by the mean of a model of all trials; trial 0002 has the best value, 0.25"
    assert choice_text("0001", mean) == text
    values = {"0001": [0.5, 1.0], "0002": [1.0, 2.0], "0003": [None]}
    confirmed = {"rule": "confirmed", "best": BEST, "values": values}
    text = "confirmed among 3 trials in 2 further trainings, with a mean of 0.75"
    more = "; trial 0002 has the best value in the search, 0.25"
    assert choice_text("0001", confirmed) == f"{text}{more}, and a mean of 1.5"
    assert choice_text("0002", confirmed) == text.replace("0.75", "1.5")
    failed = {**confirmed, "values": {**values, "0002": [None]}}
    assert choice_text("0001", failed) == text + more
    assert choice_text("0001", {**confirmed, "values": {"0001": [], "0002": []}}) == (
        f"confirmed among 2 trials in 0 further trainings{more}"
    )
