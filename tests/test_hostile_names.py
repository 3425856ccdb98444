"""Names that no file system accepts, broken links, and files in place of folders: one line each,
and no file is created.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps.core.errors import InputError
from sweeps.core.text.secrets import masked, without_password
from sweeps.space import load

SPACE = """\
name: {name}
trainer: xgboost
data: {{train: {train}, label: y, valid: 0.2}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 1}}
space: {{params: {{eta: 0.1}}}}
"""


def typed(*args: object) -> str:
    """Return the error message of a command."""
    done = CliRunner().invoke(cli.main, [str(arg) for arg in args])
    assert (
        done.exit_code == 2 and done.output.count("\n") == 1 and "Traceback" not in done.output
    ), (done.output, done.exception)
    return done.output


@pytest.fixture
def space(tmp_path: Path) -> Any:
    def write(name: str = "own", train: str = "rows.csv") -> Any:
        file = tmp_path / "space.yaml"
        file.write_text(SPACE.format(name=name, train=train))
        return file

    (tmp_path / "rows.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
    return write


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000, "ä" * 200, "a" * 256])
@pytest.mark.parametrize(
    "verb", ["show", "logs", "resume", "export", "rerun", "predict", "serve", "gc"]
)
def test_r16_a_name_that_is_too_long_is_refused_in_one_line(
    tmp_path: Path, name: Any, verb: str
) -> None:
    more = {"logs": "0", "rerun": "0", "predict": str(tmp_path / "rows.csv")}
    said = typed(verb, name, *([more[verb]] if verb in more else []), "--dir", tmp_path)
    assert "a path may have at most" in said and len(said) < 200


@pytest.mark.parametrize("verb", ["validate", "plan", "run"])
def test_r16_a_space_file_with_such_a_name_is_refused(tmp_path: Path, verb: str) -> None:
    assert "File name too long" in typed(verb, "a" * 5000)


def test_r16_a_link_to_itself_is_reported(space: Any, tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    assert "is a broken link to" in typed(
        "run", space(train="loop.csv"), "--dir", tmp_path / "runs"
    )
    assert "nowhere.csv" in typed("run", space(train="gone.csv"), "--dir", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_r16_a_sweep_cannot_be_called_latest(space: Any) -> None:
    with pytest.raises(InputError, match="name: `latest` means the newest sweep") as refused:
        load(space("latest"))
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    "root", ["s3://bucket/sweeps", "gs://bucket", "hdfs://host:1/a", "file:///tmp/x"]
)
def test_r10_a_root_that_is_a_uri_is_refused(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("run", space(), "--dir", root).startswith("--dir: ")
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "space.yaml"}


def test_r10_a_folder_whose_name_has_a_colon_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.data.checks.preflight import check_root

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab:").mkdir()
    check_root(tmp_path / "ab:" / "runs")
    check_root(tmp_path / "new:folder" / "runs")


@pytest.mark.parametrize(
    "text",
    [
        "http://me:secret@host/api",
        (
            "API request to http://me:secret@host:5000/api/2.0/mlflow failed with "
            "HTTPConnectionPool(host='host')"
        ),
        "postgresql+psycopg2://me:se/cret@host/db and http://me:secret@other",
        "'https://:secret@host'",
    ],
)
def test_r5_no_password_is_left_in_a_text(text: str) -> None:
    assert "secret" not in masked(text) and "cret" not in masked(text) and ":***@" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://host/a:b",
        "sqlite:///a/b@c.db",
        "see http://host:5000/#/x and mail me@host",
        "no URI: a:b@c",
    ],
)
def test_r5_other_texts_stay(text: str) -> None:
    assert masked(text) == text


def test_r5_the_result_of_a_sweep_names_the_server_without_the_password(tmp_path: Path) -> None:
    from sweeps.runs.mlflow_summary import place
    from sweeps.tracking import Destination, MlflowTracker

    tracker = MlflowTracker(Destination("http://me:secret@host:5000", tmp_path, "e", "s", 0.0))
    tracker.close()
    tracker.parent = "p"
    settings = place(tracker)
    assert settings["tracking_uri"] == without_password(
        "http://me:secret@host:5000"
    ) and "secret" not in str(settings)
