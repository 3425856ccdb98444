from __future__ import annotations

from pathlib import Path

import pytest

from sweeps import InputError
from sweeps.folder import new_folder, roots_of, save_space, saved_space
from sweeps.space import known_fits, load

SPACE = """\
name: x
trainer: {loop: "own_loop:train", backend: none}
data: {train: rows.csv, label: y, valid: 0.2}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 4}
space:
  preprocessor: {grid: [none, StandardScaler, [SimpleImputer: {strategy: {choice: [mean, most_frequent]}}]]}
  params: {a: {uniform: [0, 1]}, b: {randn: [0, 1]}, c: {choice: [x, y]}}
"""


@pytest.fixture
def space(tmp_path):
    (tmp_path / "own_loop.py").write_text("def train(config): ...\n")
    (tmp_path / "x.yaml").write_text(SPACE)
    return load(tmp_path / "x.yaml", ("limits.max_trials=5",))


def test_sweeps_that_start_in_the_same_second_get_folders_of_their_own(tmp_path):
    folders = {new_folder(tmp_path / "runs", "x", 1e9) for _ in range(3)}
    assert len(folders) == 3 and all(f.is_dir() for f in folders)


def test_a_root_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make a folder here"):
        new_folder(tmp_path / "file", "x", 1e9)


def test_a_saved_space_is_the_same_space_from_anywhere(space, tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    folder.mkdir()
    save_space(folder, space, 1.5)
    monkeypatch.chdir("/")
    again, roots = saved_space(folder)
    assert again.limits == space.limits and again.dimensions == space.dimensions and again.data == space.data
    assert roots[0] == roots_of(space)[0] == tmp_path


def test_a_folder_that_is_not_a_sweeps_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no readable origin\.json"):
        saved_space(Path(tmp_path))


def test_chains_are_known_beforehand_unless_something_in_them_is_sampled(space):
    assert [[step.name for step in chain] for _, chain in known_fits(space)] == [[], ["StandardScaler"]]
