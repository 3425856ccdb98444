"""`sweeps init --data`: the files that the command writes, and what it prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sweeps.space import load
from sweeps.space.sections.data_models import ReadKeys
from tests.scaffold.init_command import invoke_init
from tests.scaffold.tables import N, small
from tests.scaffold.test_from_data import written


def test_the_command_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(
        {
            "x": np.random.default_rng(0).normal(size=N),
            "z": [1, 2, 3] * (N // 3),
            "y": [0, 1] * (N // 2),
        }
    ).to_csv("rows.csv", index=False)
    done = invoke_init("--data", "rows.csv", "--label", "y")
    assert load("space.yaml").name == "rows"
    assert done.output.splitlines() == [
        "wrote space.yaml",
        "y 0 50 %, 1 50 % (positive: 1): binary, valid-logloss (for another metric: --metric)",
        "next: sweeps plan space.yaml --data, then sweeps run space.yaml",
    ]
    assert load("space.yaml").data.train == "rows.csv"
    assert (
        "space.yaml: already exists; name another FILE"
        in invoke_init("--data", "rows.csv", "--label", "y").output
    )
    assert invoke_init("--data", "rows.csv", "--label", "y", "--force").exit_code == 0
    assert (
        "is required; name one of the 3 columns, such as y: x, z, y"
        in invoke_init("other.yaml", "--data", "rows.csv").output
    )
    assert "--data: is required" in invoke_init("other.yaml").output
    assert (
        "cannot be combined" in invoke_init("other.yaml", "--data", "a", "--from-wandb", "b").output
    )


def test_the_command_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(
        {
            "x": np.random.default_rng(0).normal(size=N),
            "z": [1, 2, 3] * (N // 3),
            "y": [0, 1] * (N // 2),
        }
    ).to_csv("rows.csv", index=False)
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("sweeps.cli.init.sys", terminal)
    done = invoke_init(input="rows.csv\n\n")
    assert (
        "Table (CSV, Parquet): rows.csv\nColumns: x, z, y\n"
        "Column to predict [y]: \nwrote space.yaml" in done.output
    )


def test_the_name_of_the_file_is_the_name_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small().to_csv("rows.csv", index=False)
    assert invoke_init("churn.yaml", "--data", "rows.csv", "--label", "y").exit_code == 0
    assert load("churn.yaml").name == "churn"


def test_the_command_names_the_columns_that_it_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prices = small().assign(Price=["on request", *(f"{i / 4}" for i in range(1, N))], row=range(N))
    prices.to_csv("rows.csv", index=False)
    lines = invoke_init("--data", "rows.csv", "--label", "y").output.splitlines()
    assert lines[2] == "dropped row (numbers the rows)"
    constant = prices.assign(**{f"same{chr(97 + i)}": ["x"] * N for i in range(12)})
    constant.to_csv("rows.csv", index=False)
    lines = invoke_init("--data", "rows.csv", "--label", "y", "--force").output.splitlines()
    assert len([line for line in lines if line.startswith("dropped ")]) == 11
    assert lines[12] == "dropped 3 more columns; see data.drop in space.yaml"


def test_row_numbers_with_gap_are_dropped(tmp_path: Path) -> None:
    labels = ["no", None, *["no", "yes"] * (N // 2 - 1)]
    space, _ = written(tmp_path, small().assign(y=labels, row=range(N)))
    assert space.data.drop == ("row",)


def test_the_keys_of_read_reach_the_space_file(tmp_path: Path) -> None:
    lines = [f"{i / 7:.3f};{i % 3};{i % 2}".replace(".", ",") for i in range(300)]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-16")
    space, data = tmp_path / "s.yaml", tmp_path / "rows.csv"
    given = ("--data", data, "--label", "y", "--read")
    keys = 'separator: ";"\ndecimal: ","\nencoding: utf-16\nnames: [x, z, y]'
    assert invoke_init(space, *given, keys).exit_code == 0
    assert load(space, []).data.read == ReadKeys(("x", "z", "y"), 0, ";", ",", "utf-16")
    refused = invoke_init(space, *given, "{sep: x}", "--force")
    assert "--read: read.sep: unknown key" in refused.output
