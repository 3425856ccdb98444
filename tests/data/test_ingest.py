"""The choice between data in memory and streamed data, by the space and the sizes of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.data.sources import ingest
from sweeps.data.sources.data_files import Source, find_files
from sweeps.space import load

LOOP = '{loop: "json:load"}'


@pytest.fixture
def space(tmp_path: Path) -> Any:
    """Return a function that loads a space with a `data` section, beside the file `rows.parquet` of
    80,000 bytes.
    """
    pd.DataFrame({"a": range(10_000)}).astype("int64").to_parquet(tmp_path / "rows.parquet")

    def make(
        data: str, trainer: str = LOOP, section: str = "{params: {eta: {grid: [1, 2]}}}"
    ) -> Any:
        file = tmp_path / "space.yaml"
        file.write_text(
            f"trainer: {trainer}\ndata: {data}\nobjective: {{metric: loss, goal: minimize}}\n"
            f"space: {section}\n"
        )
        return load(file)

    return make


def test_small_data_is_held_in_memory(space: Any) -> None:
    assert ingest.choose(space("{train: rows.parquet, valid: 0.2}")) == ingest.Ingest(
        "memory", "it has less than 4 GB"
    )
    assert ingest.choose(space("{train: sklearn:iris, valid: 0.2}")) == ingest.Ingest(
        "memory", "it has less than 4 GB"
    )


def test_large_data_is_streamed_if_the_space_allows_it(
    space: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "STREAM_FROM", 50_000)
    assert ingest.choose(space("{train: rows.parquet, valid: 0.2}")).mode == "stream"
    assert ingest.resolve(space("{train: rows.parquet, valid: 0.2}")).data.ingest == "stream"
    assert (
        ingest.resolve(space("{train: rows.parquet, valid: 0.2}"), "0" * 64).data.ingest == "memory"
    ), "a sweep keeps its way"
    refused = ingest.choose(space("{train: rows.parquet, valid: 0.2, label: a}", "xgboost"))
    assert refused.mode == "memory"
    assert (
        "`trainer` rules out streaming: `xgboost` needs the whole table in memory" in refused.reason
    )


@pytest.mark.parametrize("train", ["s3://bucket/rows.parquet", "json:load", "gone.parquet"])
def test_data_of_unknown_size_is_held_in_memory(space: Any, train: str) -> None:
    assert ingest.choose(space(f"{{train: '{train}', valid: 0.2}}")) == ingest.Ingest(
        "memory", "its size is not known before the sweep"
    )


@pytest.mark.parametrize("mode", ["memory", "stream"])
def test_the_space_file_decides_if_it_names_a_way(space: Any, mode: str) -> None:
    chosen = space(f"{{train: rows.parquet, valid: 0.2, ingest: {mode}}}")
    assert ingest.choose(chosen) == ingest.Ingest(mode, "data.ingest")
    assert all(variant.ingest == mode for variant in chosen.variants)


def test_the_size_of_many_files_is_estimated_from_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(7):
        (tmp_path / f"{i}.csv").write_text("a\n" + "1\n" * (100 * i))
    files = find_files(Source(str(tmp_path / "*.csv"), Path(), "data.train"))
    exact = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert ingest.estimate_bytes(files) == exact
    monkeypatch.setattr(ingest, "SAMPLED_FILES", 3)
    assert ingest.estimate_bytes(files) == exact, (
        "text is not compressed, so a part tells the whole size"
    )


def test_a_space_without_data_stays_as_it_is(space: Any) -> None:
    ingested = space("{train: rows.parquet, valid: 0.2}")
    without = replace(ingested, data=replace(ingested.data, train=""))
    assert ingest.resolve(without) is without
