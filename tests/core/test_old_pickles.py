"""Pickles in the folder of an earlier version load into today's classes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pandas as pd
import pytest

from sweeps.core import old_pickles
from sweeps.data.preprocessing.fitted_chain import FittedChain, StepConfig
from sweeps.data.preprocessing.fitted_steps import FittedEstimator

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "sweep-3d17d2a.tar.gz"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def test_information_about_the_data_loads(sweep):
    info = old_pickles.loads((sweep / "prepared" / "facts.pkl").read_bytes())
    assert info.classes == (0, 1, 2) and len(info.features) == 13 and len(info.check) == 32


def test_fitted_chains_load_and_transform(sweep):
    info = old_pickles.loads((sweep / "prepared" / "facts.pkl").read_bytes())
    chains = [
        old_pickles.loads(file.read_bytes())
        for file in sorted((sweep / "prepared").glob("?" * 16 + ".pkl"))
    ]
    assert len(chains) == 2
    for chain in chains:
        assert isinstance(chain, FittedChain) and isinstance(chain.steps[0], StepConfig)
        prepared = chain.transform(info.check)
        assert list(prepared.columns) == list(info.features) and prepared.notna().all().all()


def test_the_step_of_a_bundle_loads_under_its_new_field_names(sweep):
    step = old_pickles.loads(
        (sweep / "bundle" / "data" / "sweep" / "preprocessor-1.pkl").read_bytes()
    )
    assert isinstance(step, FittedEstimator) and step.outputs == step.inputs and step.fixed_blocks
    frame = pd.DataFrame({name: [1.0, 2.0] for name in step.inputs})
    assert step.apply(frame).shape == frame.shape
