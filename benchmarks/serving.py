"""Speed of serving: `sweeps serve` compared with `mlflow models serve`, and `sweeps predict`
compared with a bare loop.

`python -m benchmarks.serving` writes reports/serving.md. Each server is a separate process. This
process sends the requests over the loopback interface, through 8 connections that stay open. The
two servers are measured in turn. The report has the medians of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

REPORT = Path(__file__).parent.parent / "reports" / "serving.md"
CONNECTIONS = 8
SECONDS = 4.0
REPEATS = 5
BULK_ROWS = 400_000


def rows(n: int) -> pd.DataFrame:
    """Return a table with 20 columns of numbers, some of them missing, and 2 columns of text."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 20)), columns=[f"n{i}" for i in range(20)])
    frame = frame.mask(rng.random(frame.shape) < 0.02)
    return frame.assign(
        plan=rng.choice(list("abcd"), n), town=rng.choice([f"town {i}" for i in range(10)], n)
    )


def make_bundle(folder: Path) -> Path:
    """Make a bundle with an XGBoost model of 100 trees, imputer, scaler and one-hot encoder."""
    import xgboost as xgb

    from sweeps.bundle.model_code import ModelCode
    from sweeps.bundle.write import SINGLE, TrainedModel, write_bundle
    from sweeps.data.prepared_store import DatasetInfo
    from sweeps.data.preprocessing.fit import fit_chain
    from sweeps.space import Step

    steps = (
        Step("sklearn.impute:SimpleImputer", "numeric", {}),
        Step("sklearn.preprocessing:StandardScaler", "numeric", {}),
        Step("sklearn.preprocessing:OneHotEncoder", "categorical", {}),
    )
    raw = rows(5000)
    fitted = fit_chain(steps, pa.Table.from_pandas(raw), None)
    features = fitted.transform(raw)
    label = ((raw["n0"].fillna(0) + (raw["plan"] == "a")) > 0.3).to_numpy(int)
    booster = xgb.train(
        {"objective": "binary:logistic", "max_depth": 6, "nthread": 1},
        xgb.DMatrix(features, label),
        100,
    )
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    booster.save_model(checkpoint / "model.ubj")
    from sweeps.trainers.xgboost import load

    code = ModelCode("sweeps.trainers.xgboost:load", roots=())
    return write_bundle(
        folder / "bundle",
        models={SINGLE: TrainedModel(checkpoint, fitted, code)},
        info=DatasetInfo(
            label="churned",
            task="binary",
            classes=("no", "yes"),
            features=tuple(raw.columns),
            fingerprint="",
            rows={},
            check=raw.head(32),
        ),
        expected=load(str(checkpoint)).predict(features.head(32)),
        training={"sweep": "bench"},
    )


@contextlib.contextmanager
def server(command: list[str], port: int, ready: str) -> Iterator[None]:
    """Run a server process for the duration of the context."""
    # MLflow calls `uvicorn` by its name, so the folder of this Python must be on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(OSError):
                if (
                    urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=2).status
                    == 200
                ):
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"did not start: {' '.join(command)}")
            time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _ask(port: int, request: bytes, until: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (start := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:20]:
            raise RuntimeError(head.decode())
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        took.append(time.perf_counter() - start)
    writer.close()


def load_of(port: int, path: str, body: bytes, seconds: float) -> tuple[float, float, float]:
    """Return the requests per second, and the latencies p50 and p99 in ms, with 8 connections."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()

    async def all_of_them() -> tuple[float, list[float]]:
        took: list[float] = []
        start = time.perf_counter()
        await asyncio.gather(
            *(_ask(port, head + body, start + seconds, took) for _ in range(CONNECTIONS))
        )
        return time.perf_counter() - start, took

    asyncio.run(_warm(port, head + body))
    wall, took = asyncio.run(all_of_them())
    return (
        len(took) / wall,
        1e3 * float(np.quantile(took, 0.5)),
        1e3 * float(np.quantile(took, 0.99)),
    )


async def _warm(port: int, request: bytes) -> None:
    await _ask(port, request, time.perf_counter() + 0.5, [])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serving(
    bundle: Path, repeats: int, seconds: float
) -> dict[tuple[str, int], list[tuple[float, float, float]]]:
    """Measure the servers. Map (server, rows in a request) to the result of each repeat."""
    times: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    ours, theirs = free_port(), free_port()
    ours_command = [sys.executable, "-m", "sweeps.cli", "serve", str(bundle), "--port", str(ours)]
    theirs_command = [
        sys.executable,
        "-m",
        "mlflow",
        "models",
        "serve",
        "-m",
        str(bundle),
        "--env-manager",
        "local",
        "-p",
        str(theirs),
    ]
    with server(ours_command, ours, "/health"), server(theirs_command, theirs, "/ping"):
        for _ in range(repeats):
            for n in (1, 100):
                records = json.loads(rows(n).to_json(orient="records"))
                measured = load_of(
                    ours, "/predict", json.dumps({"records": records}).encode(), seconds
                )
                times.setdefault(("sweeps serve", n), []).append(measured)
                measured = load_of(
                    theirs,
                    "/invocations",
                    json.dumps({"dataframe_records": records}).encode(),
                    seconds,
                )
                times.setdefault(("mlflow models serve", n), []).append(measured)
    return times


def bulk(bundle: Path, folder: Path, repeats: int, count: int) -> dict[str, list[float]]:
    """Measure the rows per second of `sweeps predict` and of a bare loop in turn, from Parquet to
    Parquet.
    """
    import pyarrow.parquet as pq

    from sweeps.bundle.bundle_model import load_bundle
    from sweeps.bundle.predict_rows import predict_file

    source = folder / "rows.parquet"
    rows(count).to_parquet(source)
    model = load_bundle(bundle)

    def bare() -> None:
        with contextlib.ExitStack() as stack:
            writer = None
            for batch in pq.ParquetFile(source).iter_batches(50_000):
                table = pa.Table.from_pandas(model.predict(batch.to_pandas()), preserve_index=False)
                writer = writer or stack.enter_context(
                    pq.ParquetWriter(folder / "bare.parquet", table.schema)
                )
                writer.write_table(table)

    times: dict[str, list[float]] = {"sweeps predict": [], "a bare loop": []}
    for _ in range(repeats):
        for name, run in (
            ("sweeps predict", lambda: predict_file(bundle, source, folder / "out.parquet")),
            ("a bare loop", bare),
        ):
            start = time.perf_counter()
            run()
            times[name].append(count / (time.perf_counter() - start))
    return times


def first_prediction(bundle: Path, repeats: int) -> list[float]:
    """Return the seconds from the start of a new process to its first prediction with
    `mlflow.pyfunc.load_model`.
    """
    code = (
        "import sys, mlflow.pyfunc, pandas as pd\n"
        "mlflow.pyfunc.load_model(sys.argv[1]).predict(pd.read_parquet(sys.argv[1] + "
        "'/data/sweep/check.parquet').head(1))"
    )
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, str(bundle)],
            check=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )
        took.append(time.perf_counter() - start)
    return took


def report(
    served: dict[Any, Any],
    rates: dict[str, list[float]],
    first: list[float],
    args: argparse.Namespace,
) -> str:
    """Return the report."""
    lines = [
        "# Serving\n",
        f"`make bench-serving` on {os.cpu_count()} cores ({platform.machine()}, Python "
        f"{platform.python_version()}). The bundle has an "
        "XGBoost model of 100 trees, an imputer, a scaler and a one-hot encoder. Its rows have 20 "
        "columns of numbers and 2 columns of "
        f"text. A second process sends requests through {CONNECTIONS} connections on the loopback "
        "interface. The two servers are "
        f"measured in turn, {args.seconds:g} s each. A cell has the median of {args.repeats} "
        "measurements (lowest and highest in "
        "brackets).\n",
        "| rows in a request | | requests/s | p50, ms | p99, ms |",
        "|---|---|---|---|---|",
    ]
    middle = {
        key: [statistics.median(m[i] for m in measured) for i in range(3)]
        for key, measured in served.items()
    }
    for n in (1, 100):
        for name in ("sweeps serve", "mlflow models serve"):
            spread = [[m[i] for m in served[name, n]] for i in range(3)]
            cells = [
                f"{middle[name, n][i]:.{0 if i == 0 else 1}f} ({min(s):.{0 if i == 0 else 1}f} to "
                f"{max(s):.{0 if i == 0 else 1}f})"
                for i, s in enumerate(spread)
            ]
            lines.append(f"| {n} | `{name}` | {' | '.join(cells)} |")
        ours, theirs = middle["sweeps serve", n], middle["mlflow models serve", n]
        lines.append(
            f"| {n} | ratio | {ours[0] / theirs[0]:.1f} × | {ours[1] / theirs[1]:.2f} × | "
            f"{ours[2] / theirs[2]:.2f} × |"
        )
    bulk_middle = {name: statistics.median(values) for name, values in rates.items()}
    lines += [
        f"\n`sweeps predict` with {args.rows:,} rows, from Parquet to Parquet, including the time "
        "to load the bundle. The bare loop reads "
        "the rows, calls the loaded model and writes the predictions:\n",
        "| | rows/s |",
        "|---|---|",
        *(
            f"| {name} | {bulk_middle[name]:,.0f} ({min(v):,.0f} to {max(v):,.0f}) |"
            for name, v in rates.items()
        ),
        f"| ratio | {bulk_middle['sweeps predict'] / bulk_middle['a bare loop']:.2f} × |",
        "\nTime from the start of a new process to its first prediction, with "
        "`mlflow.pyfunc.load_model`: "
        f"{statistics.median(first):.2f} s ({min(first):.2f} to {max(first):.2f}).\n",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rows", type=int, default=BULK_ROWS)
    parser.add_argument("-o", "--output", type=Path, default=REPORT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder))
        first = first_prediction(bundle, args.repeats)
        served = serving(bundle, args.repeats, args.seconds)
        rates = bulk(bundle, Path(folder), args.repeats, args.rows)
    text = report(served, rates, first, args)
    args.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
