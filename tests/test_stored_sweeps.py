"""Sweeps in S3-compatible storage: data from a bucket, `--dir s3://...`, another machine, and a
storage that fails.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn import datasets

import sweeps
from sweeps.core.errors import InputError
from sweeps.study.record_reader import read
from tests.commands import command, invoke, space_of
from tests.postgres import PASSWORD, server
from tests.ray_nodes import nodes
from tests.s3 import storage
from tests.stored_sweep_files import (
    CLUSTER,
    FOREST,
    LOOP,
    checkpoints,
    end,
    latest_checkpoint,
    leaks,
    machine,
    reports,
    space_with_stored_data,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Any]:
    with storage() as server:
        yield server


@pytest.mark.extended
def test_a_killed_sweep_continues_on_another_machine_from_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Any
) -> None:
    file = space_with_stored_data(
        tmp_path, bucket, "held", limits="max_trials: 2, max_concurrent_trials: 1"
    )
    first = machine(tmp_path, "first", monkeypatch)
    process = command("run", file, "--dir", "s3://bucket/sweeps", "-q")
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    folder = next((first / "sweeps-runs").glob("own-*"))
    address = f"s3://bucket/sweeps/{folder.name}"
    journal = f"sweeps/{folder.name}/study.journal"
    wait_until(
        lambda: b"checkpoint_000002" in bucket.files().get(journal, b""),
        60,
        "the study to be in the bucket",
    )
    assert not list(folder.glob("trials/*/checkpoint_*")), "the checkpoints are in the bucket alone"
    end(process, folder)

    second = machine(tmp_path, "second", monkeypatch)
    (tmp_path / "go").touch()
    resumed = command("resume", address, "--json")
    out, err = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, err
    result = json.loads(out)
    assert (
        result["trials"] == {"completed": 2, "pruned": 0, "failed": 0}
        and result["store"] == address
    )
    assert result["dir"] == str(second / "sweeps-runs" / folder.name)
    starts = sorted(
        f.name.split("started-at-")[1].split(".")[0] for f in tmp_path.glob("own-0000.started-at-*")
    )
    assert starts == ["0", "2"], "the trial continued from its checkpoint"

    names = {
        key.removeprefix(f"sweeps/{folder.name}/")
        for key in bucket.files()
        if key.startswith("sweeps/")
    }
    assert {
        "space.yaml",
        "origin.json",
        "study.journal",
        "result.json",
        "report.html",
        "report.md",
        "checkpoint/state.json",
    } <= names
    assert {"trials/0000/logs/rank-0.log", "trials/0001/logs/rank-0.log"} <= names
    assert not names & {"lock", "ray.json", "stages.json", "mlflow.db"} and not any(
        "/." in f"/{name}" for name in names
    )
    assert all(len(kept) <= 2 for kept in checkpoints(bucket, folder.name).values()), checkpoints(
        bucket, folder.name
    )
    assert (
        bucket.files()[journal]
        == (second / "sweeps-runs" / folder.name / "study.journal").read_bytes()
    )

    third = machine(tmp_path, "third", monkeypatch)
    shown = json.loads(invoke("show", address, "--json").output)
    assert (
        shown["state"] == "finished"
        and shown["best"]["trial"] == result["best"]["trial"]
        and not list(third.iterdir())
    )
    assert "own-" in invoke("show", "latest", "--dir", "s3://bucket/sweeps").output
    exported = invoke("export", address, "--trial", "1")
    assert exported.exit_code == 0, exported.output
    assert f"sweeps/{folder.name}/exports/0001/state.json" in bucket.files()
    local = invoke("export", third / "sweeps-runs" / folder.name, "--trial", "0")
    best = sweeps.open(address).best
    assert local.exit_code == 0 and best is not None and best.id == result["best"]["trial"]
    monkeypatch.setattr("sweeps.core.files.stores._allowed", set())
    refused = invoke("export", third / "sweeps-runs" / folder.name, "--trial", "0")
    assert (
        refused.exit_code == 2
        and f"this sweep is stored in {address}; give this address" in refused.output
    )

    (bucket_files := tmp_path / "bucket-files").mkdir()
    for number, content in enumerate(bucket.files().values()):
        (bucket_files / str(number)).write_bytes(content)
    assert not leaks(first, second, third, bucket_files)


@pytest.mark.long
def test_failed_storage_ends_sweep_in_one_line_and_resume_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Any
) -> None:
    here = machine(tmp_path, "here", monkeypatch)
    file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    process = command("run", file, "--dir", "s3://bucket/sweeps", "-q")
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    folder = next((here / "sweeps-runs").glob("own-*"))
    address = f"s3://bucket/sweeps/{folder.name}"
    wait_until(
        lambda: "checkpoint_000002" in (folder / "study.journal").read_text(),
        60,
        "its checkpoint to be recorded",
    )
    bucket.down = True
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=120)
    bucket.down = False
    assert process.returncode == 1 and bucket.refused
    line = err.strip().splitlines()[-1]
    assert line.startswith(
        f"{address}/trials/0000/checkpoint_000003 cannot be written: AWS Error"
    ), err
    assert "everything that the study has recorded is safe; to continue the sweep: " in line, err
    assert line.endswith(f"sweeps resume {address}"), err
    record = read(folder)
    assert record is not None and [t.result.state.name for t in record.trials] == ["RUNNING"]
    resumed = command("resume", address, "--json")
    out, err = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, err
    assert json.loads(out)["trials"] == {"completed": 2, "pruned": 0, "failed": 0}
    assert sorted(
        f.name.split("started-at-")[1].split(".")[0] for f in tmp_path.glob("own-0000.started-at-*")
    ) == ["0", "2"]


@pytest.mark.extended
def test_a_bucket_that_refuses_the_sweep_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Any
) -> None:
    here = machine(tmp_path, "here", monkeypatch)
    with pytest.raises(
        InputError, match=r"s3://other-bucket/sweeps/own-\S+ cannot be written"
    ) as caught:
        sweeps.run(space_of(tmp_path, "held"), dir="s3://other-bucket/sweeps")
    assert len(str(caught.value).splitlines()) == 1 and "s3://other-bucket/sweeps/own-" in str(
        caught.value
    )
    assert (
        not [path for path in here.rglob("*") if path.name.startswith("own-")]
        and not bucket.files()
    )


@pytest.mark.long
@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs mount namespaces",
)
def test_a_node_that_shares_no_folder_gets_its_checkpoint_from_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Any
) -> None:
    datasets.load_iris(as_frame=True).frame.to_parquet(tmp_path / "iris.parquet")
    bucket.put("rows/iris.parquet", tmp_path / "iris.parquet")
    driver = machine(tmp_path, "driver", monkeypatch)
    (driver / "mine.py").write_text(LOOP)
    (driver / "space.yaml").write_text(CLUSTER.format(driver=driver))
    without = dict.fromkeys(bucket.environment, "")
    with nodes(**without) as cluster:
        cluster.head("--num-cpus=1", "--include-dashboard=false")
        # Ray finds the driver's node by its address, so the second node needs another one.
        cluster.start(
            f"--address={cluster.address}",
            "--num-cpus=1",
            "--node-ip-address=127.0.0.2",
            hidden=driver,
        )
        for name, value in cluster.credentials.items():
            monkeypatch.setenv(name, value)
        process = command(
            "run",
            driver / "space.yaml",
            "--dir",
            "s3://bucket/sweeps",
            "--address",
            cluster.address,
            "--json",
        )
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    folder = Path(json.loads(out)["dir"])
    record = read(folder)
    assert record is not None and record.trials[0].attempt == 2
    first, *_, last = reports(folder)
    assert (first["parts"], last["parts"], last["blind"]) == (0, 2, 1), (
        "the second attempt has read the parts of both nodes"
    )
    files = bucket.files()
    assert {f"sweeps/{folder.name}/trials/0000/logs/rank-{rank}.log" for rank in (0, 1)} <= set(
        files
    )
    assert not list(folder.glob("trials/*/checkpoint_*")) and not leaks(folder)


@pytest.mark.long
@pytest.mark.extended
def test_refit_trust_and_gc_of_a_stored_sweep(
    clean_ray: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket: Any,
    checked_in_this_process: Any,
) -> None:
    """The checkpoints of scikit-learn's estimators are pickles, which are signed with the key of
    the user.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forest.yaml").write_text(FOREST)
    result = sweeps.run("forest.yaml", dir="s3://bucket/sweeps")
    address, before = str(result.store), checkpoints(bucket, result.sweep)
    assert set(before) == {"0000", "0001"} and result.best is not None
    best = str(result.best["trial"])
    other = next(iter(set(before) - {best}))

    refitted = invoke("export", address, "--trial", best, "--refit")
    assert refitted.exit_code == 0, refitted.output
    manifest = json.loads(
        bucket.files()[f"sweeps/{result.sweep}/exports/{best}-refit/manifest.json"]
    )
    assert manifest["training"]["refit"]["rows"] == 150
    assert (
        not [key for key in bucket.files() if "/.rerun-" in key]
        and checkpoints(bucket, result.sweep) == before
    )

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other-key").write_text("0123456789abcdef0123456789abcdef")
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path / "elsewhere")
        elsewhere.setenv("SWEEPS_KEY_FILE", str(tmp_path / "other-key"))
        refused = invoke("export", address, "--trial", other)
        assert (
            refused.exit_code == 2
            and refused.stderr.count("\n") == 1
            and "--trust" in refused.stderr
        ), refused.stderr
        trusted = invoke("export", address, "--trial", other, "--trust")
        assert trusted.exit_code == 0, trusted.output
    assert f"sweeps/{result.sweep}/exports/{other}/manifest.json" in bucket.files()

    dry = invoke("gc", address, "--top", "1", "--dry-run")
    assert (
        dry.exit_code == 0
        and "would free" in dry.output
        and checkpoints(bucket, result.sweep) == before
    )
    freed = invoke("gc", address, "--top", "1")
    assert freed.exit_code == 0 and "freed" in freed.output, freed.output
    assert set(checkpoints(bucket, result.sweep)) == {best}
    shown = json.loads(invoke("show", address, "--json").output)
    assert shown["state"] == "finished" and shown["best"]["trial"] == result.best["trial"]
    gone = invoke("export", address, "--trial", other, "-o", tmp_path / "gone")
    assert gone.exit_code == 2 and gone.stderr.count("\n") == 1, gone.output
    assert not leaks(tmp_path)


@pytest.mark.long
def test_stored_sweep_with_database_continues_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Any
) -> None:
    with server() as database:
        file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
        first = machine(tmp_path, "first", monkeypatch)
        process = command("run", file, "--dir", "s3://bucket/sweeps", "--storage", database, "-q")
        wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
        folder = next((first / "sweeps-runs").glob("own-*"))
        address = f"s3://bucket/sweeps/{folder.name}"
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        wait_until(
            lambda: latest_checkpoint(folder) == "checkpoint_000002",
            60,
            "the study to have the second checkpoint",
        )
        end(process, folder)

        second = machine(tmp_path, "second", monkeypatch)
        (tmp_path / "go").touch()
        resumed = command("resume", address, "--json")
        out, err = resumed.communicate(timeout=150)
        assert resumed.returncode == 0, err
        assert json.loads(out)["trials"] == {"completed": 2, "pruned": 0, "failed": 0}
        starts = sorted(
            f.name.split("started-at-")[1].split(".")[0]
            for f in tmp_path.glob("own-0000.started-at-*")
        )
        assert starts == ["0", "2"], "the trial continued from its checkpoint"
        third = machine(tmp_path, "third", monkeypatch)
        assert json.loads(invoke("show", address, "--json").output)["trials"][
            "completed"
        ] == 2 and not list(third.iterdir())
        files = bucket.files()
        assert (
            f"sweeps/{folder.name}/study.journal" not in files
            and f"sweeps/{folder.name}/result.json" in files
        )
        assert not [
            key for key, content in files.items() if PASSWORD.encode() in content
        ] and not leaks(first, second)


def test_rows_of_a_bucket(tmp_path: Path, bucket: Any) -> None:
    from sweeps.data.sources.data_files import Source, find_files

    pd.DataFrame({"x": [1]}).to_csv(tmp_path / "rows.csv", index=False)
    for key in ("rows/a.csv", "rows/b.csv", "rows/note.txt"):
        bucket.put(key, tmp_path / "rows.csv")
    assert find_files(Source("s3://bucket/rows/a.csv", tmp_path, "data.train")).paths == (
        "bucket/rows/a.csv",
    )
    assert find_files(Source("s3://bucket/rows/", tmp_path, "data.train")).paths == (
        "bucket/rows/a.csv",
        "bucket/rows/b.csv",
    )
    assert find_files(Source("s3://bucket/rows/*.csv", tmp_path, "data.train")).paths == (
        "bucket/rows/a.csv",
        "bucket/rows/b.csv",
    )
    with pytest.raises(InputError, match=r"`s3://bucket/none.csv` does not exist"):
        find_files(Source("s3://bucket/none.csv", tmp_path, "data.train"))
