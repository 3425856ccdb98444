"""Ways to tamper with a bundle, and the page of error messages for each: `python -m
tests.bundle.tampering` writes the page.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "tampered_bundles.md"
COMMAND = "python -m tests.bundle.tampering"
MARK = "SWEEPS_TEST_MARK"


class Mark:
    """Pickle that creates a file when it is read."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; open(os.environ[{MARK!r}], 'w').close()",)


MARKING = f"import os\nopen(os.environ[{MARK!r}], 'w').close()\n"


@dataclass(frozen=True)
class Tampered:
    """One way to change a bundle.

    Attributes:
        what: The change, in a few words.
        do: Function that changes the bundle's folder.
    """

    what: str
    do: Callable[[Path], object]


def flip(name: str, at: float = 0.5) -> Tampered:
    """Flip one bit. The place is a fraction of the file's length."""

    def do(bundle: Path) -> None:
        raw = bytearray((bundle / name).read_bytes())
        raw[min(int(len(raw) * at), len(raw) - 1)] ^= 1
        (bundle / name).write_bytes(raw)

    place = (
        "one byte"
        if at == 0.5
        else "one byte near the end"
        if at > 0.5
        else "one byte near the beginning"
    )
    return Tampered(f"{place} of `{name}`", do)


def gone(name: str) -> Tampered:
    return Tampered(f"without `{name}`", lambda bundle: (bundle / name).unlink())


def more(name: str, content: bytes = b"") -> Tampered:
    def do(bundle: Path) -> None:
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(content)

    return Tampered(f"`{name}` added", do)


def put(what: str, name: str, content: bytes) -> Tampered:
    return Tampered(what, lambda bundle: (bundle / name).write_bytes(content))


def swap(one: str, two: str) -> Tampered:
    def do(bundle: Path) -> None:
        a, b = (bundle / one).read_bytes(), (bundle / two).read_bytes()
        (bundle / one).write_bytes(b)
        (bundle / two).write_bytes(a)

    return Tampered(f"`{one}` and `{two}` are swapped", do)


def linked(name: str) -> Tampered:
    def do(bundle: Path) -> None:
        elsewhere = bundle.parent / f"elsewhere-{bundle.name}"
        (bundle / name).rename(elsewhere)
        (bundle / name).symlink_to(elsewhere)

    return Tampered(f"`{name}` is a link to the same bytes elsewhere", do)


def piped(name: str) -> Tampered:
    def do(bundle: Path) -> None:
        (bundle / name).unlink()
        os.mkfifo(bundle / name)

    return Tampered(f"`{name}` is a pipe to which no process writes", do)


def bytecode(bundle: Path) -> None:
    (bundle / "code/__pycache__").unlink()
    (bundle / "code/__pycache__").mkdir()
    (bundle / "code/__pycache__/sweeps_bundle.cpython-311.pyc").write_bytes(b"no bytecode")


def without_entry(bundle: Path) -> None:
    import json

    stored = json.loads((bundle / "manifest.json").read_text())
    del stored["files"]["data/sweep/check.npy"]
    (bundle / "manifest.json").write_text(json.dumps(stored, indent=2))
    (bundle / "data/sweep/check.npy").unlink()


MODEL, PICKLE, CHAIN = (
    "data/sweep/model/model.ubj",
    "data/sweep/preprocessor-2.pkl",
    "data/sweep/preprocessor.json",
)
CASES = (
    flip(MODEL),
    flip(MODEL, 0.999),
    flip(CHAIN),
    flip(PICKLE),
    flip("data/sweep/check.parquet"),
    flip("data/sweep/check.npy", 0.99),
    flip("manifest.json", 0.3),
    flip("manifest.sha256", 0.1),
    flip("requirements.txt"),
    flip("README.md"),
    flip("conda.yaml", 0.99),
    flip("input_example.json"),
    flip("code/_sweeps/sweeps/bundle/bundle_model.py"),
    flip("code/_sweeps/sweeps/__init__.py", 0.02),
    flip("code/_sweeps/sweeps/trainers/xgboost.py"),
    flip("code/sweeps_bundle.py", 0.002),
    put("`MLmodel` with an additional line, `# mine`", "MLmodel", b""),
    put(f"`{PICKLE}` is another pickle, which runs a command", PICKLE, pickle.dumps(Mark())),
    put(
        "`code/_sweeps/sweeps/trainers/xgboost.py` is a file by another author",
        "code/_sweeps/sweeps/trainers/xgboost.py",
        MARKING.encode(),
    ),
    put(f"`{MODEL}` is empty", MODEL, b""),
    gone(MODEL),
    gone(CHAIN),
    gone(PICKLE),
    gone("code/_sweeps/sweeps/core/errors.py"),
    gone("manifest.sha256"),
    gone("requirements.txt"),
    more("code/numexpr.py", MARKING.encode()),
    more("code/_sweeps/sweeps/bundle/sitecustomize.py", MARKING.encode()),
    more("code/_sweeps/sweeps/__pycache__/errors.cpython-311.pyc", b"no bytecode"),
    more("data/sweep/preprocessor-3.pkl", pickle.dumps(Mark())),
    more(".notes", b"mine"),
    swap("data/sweep/check.npy", "data/sweep/check.parquet"),
    linked(MODEL),
    linked("manifest.json"),
    piped("data/sweep/check.parquet"),
    Tampered("`code/__pycache__`, an empty file, is replaced by a folder with bytecode", bytecode),
    Tampered("`data/sweep/check.npy` is deleted, and its line in the manifest too", without_entry),
)


def applied(case: Tampered, bundle: Path) -> None:
    """Return a copy of the bundle that was changed in one way."""
    if case.what.startswith("`MLmodel`"):
        (bundle / "MLmodel").write_bytes((bundle / "MLmodel").read_bytes() + b"# mine\n")
    else:
        case.do(bundle)


def page(answers: dict[str, tuple[str, str]]) -> str:
    """Return the page as Markdown.

    Args:
        answers: The answers of `sweeps.load_bundle` and of MLflow, by the change.
    """
    head = f"""# Answers to tampered bundles

<!-- Written by `{COMMAND}`. tests/bundle/test_tampered_bundles.py checks it. -->

This page shows {len(answers)} changes of a valid bundle with an XGBoost model \
and a preprocessing chain that contains one
pickle. Each changed bundle is loaded in two ways: by `sweeps.load_bundle`, \
which `sweeps predict` and `sweeps serve` use (exit code 1),
and by `mlflow.pyfunc.load_model` in a process without sweeps. \
Each answer begins with the bundle's path. No pickle of the bundle is
read. Only one file of its code is imported: `code/sweeps_bundle.py`, which makes the checks.

| change | `sweeps.load_bundle` | `mlflow.pyfunc.load_model`, if its answer differs |
|---|---|---|
"""
    return head + "".join(
        f"| {what} | {ours} | {theirs if theirs != ours else ''} |\n"
        for what, (ours, theirs) in answers.items()
    )


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "trainers")]
    from test_tampered_bundles import answered, good

    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(MARK, str(Path(folder, "mark")))
        PAGE.write_text(page(answered(good(Path(folder)), Path(folder))), encoding="utf-8")
