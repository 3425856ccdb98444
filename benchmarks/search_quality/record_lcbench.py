"""Copy the network for LCBench out of YAHPO Gym's data: `python -m
benchmarks.search_quality.record_lcbench FOLDER`.

FOLDER is the folder `lcbench` of https://github.com/slds-lmu/yahpo_data, with `model.onnx` and
`encoding.json`. The package `onnx` must be installed. With `onnxruntime` too, the script compares
its copy with the original. Only the OpenML tasks in `lcbench.DEVELOPMENT` and `lcbench.HELD` are
copied and evaluated. The script also searches each task's optimum and its median random
configuration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.search_quality import lcbench
from benchmarks.search_quality.lcbench import DEVELOPMENT, EPOCHS, FILE, HELD, predict, rows_of

LOW = np.array([16, 1e-4, 0.1, 1e-5, 1, 64, 0.0])  # in the order of INPUTS, without the epoch
HIGH = np.array([512, 1e-1, 0.99, 0.1, 5, 1024, 1.0])
LOG = np.array([True, True, False, False, False, True, False])
INTEGER = np.array([True, False, False, False, True, True, False])


def configs(unit: np.ndarray) -> np.ndarray:
    """Return the configurations at points of the unit cube."""
    low, high = LOW - 0.499 * INTEGER, HIGH + 0.499 * INTEGER
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.where(
            LOG, np.exp(np.log(low) + unit * np.log(high / low)), low + unit * (high - low)
        )
    return np.where(INTEGER, np.clip(np.rint(drawn), LOW, HIGH), drawn)


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays of `lcbench.npz`. Normalizations are merged into the layer that follows."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(folder / "model.onnx")).graph
    read = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in graph.initializer}
    codes = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    allowed = [*DEVELOPMENT, *HELD]
    weights = {"embedding": read["embds_fct.0.weight"][[codes[str(i)] for i in allowed]]}
    weights |= {"first": read["first_layer.weight"], "first_bias": read["first_layer.bias"]}
    for i in range(3):
        scale, shift = _normalization(read, f"layers.{i}.norm")
        weight = read[f"layers.{i}.linear0.weight"]
        weights[f"in{i}"], weights[f"in{i}_bias"] = (
            weight * scale,
            read[f"layers.{i}.linear0.bias"] + weight @ shift,
        )
        weights[f"out{i}"], weights[f"out{i}_bias"] = (
            read[f"layers.{i}.linear1.weight"],
            read[f"layers.{i}.linear1.bias"],
        )
    weights["last_scale"], weights["last_shift"] = _normalization(read, "last_normalization")
    weights["head"], weights["head_bias"] = read["head.weight"][:2], read["head.bias"][:2]
    small = {
        name: a.astype(np.float16 if a.size > 10_000 else np.float32) for name, a in weights.items()
    }
    return {"instances": np.array(allowed), **small, **_transforms(graph)}


def _normalization(read: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    scale = read[f"{name}.weight"] / np.sqrt(read[f"{name}.running_var"] + 1e-5)
    return scale, read[f"{name}.bias"] - read[f"{name}.running_mean"] * scale


def _transforms(graph: object) -> dict[str, np.ndarray]:
    """Return the scaling of the inputs and of the first two outputs, which are constants of the
    graph.
    """
    from onnx import numpy_helper

    nodes = {out: node for node in graph.node for out in node.output}  # type: ignore[attr-defined]
    concat = [node for node in graph.node if node.op_type == "Concat"]  # type: ignore[attr-defined]
    chains = []
    for name in [*next(n for n in concat if len(n.input) == 8).input, *concat[-1].input[:2]]:
        chain: dict[str, float] = {}
        node = nodes[name]
        while node.op_type not in ("Gather",):
            constant = [
                numpy_helper.to_array(nodes[i].attribute[0].t)
                for i in node.input
                if i in nodes and nodes[i].op_type == "Constant"
            ]
            chain.setdefault(
                node.op_type,
                float(constant[0]) if constant and node.op_type != "Unsqueeze" else 1.0,
            )
            node = next(nodes[i] for i in node.input if nodes[i].op_type != "Constant")
        chains.append(chain)
    ins, outs = chains[:8], chains[8:]
    return {
        "log_input": np.array(["Log" in c for c in ins]),
        "shift_input": np.array([c["Sub"] for c in ins]),
        "scale_input": np.array([c["Div"] for c in ins]),
        "scale_output": np.array([c["Mul"] for c in outs]),
        "shift_output": np.array([c["Add"] for c in outs]),
    }


def compare(weights: dict[str, np.ndarray], folder: Path) -> None:
    """Print the largest and the mean difference of the error rates to those of the original."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        print("onnxruntime is not installed: the copy was not compared with the original")
        return
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    codes = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    for instance in DEVELOPMENT[:3]:
        rows = rows_of(configs(np.random.RandomState(0).rand(20, 7)), np.arange(1, EPOCHS + 1))
        inputs = {
            "x_cat": np.full((len(rows), 1), codes[str(instance)], np.int32),
            "x_cont": rows.astype(np.float32),
        }
        away = np.abs(
            100 - session.run(None, inputs)[0][:, 1] - predict(weights, instance, rows)[:, 1]
        )
        print(
            instance,
            "largest difference",
            away.max().round(3),
            "mean",
            away.mean().round(4),
            flush=True,
        )


def extremes(weights: dict[str, np.ndarray], instance: int) -> tuple[float, float, float]:
    """Return the smallest error rate, the median of the last error rates, and the median of the
    seconds of all epochs.

    The smallest value is searched from the 200 best of 3,000 random configurations, a third of
    which have several values at an end of the range: the network extrapolates there, and has its
    optimum there for some tasks.
    """
    rng = np.random.RandomState(instance)
    best, few = rng.rand(3000, 7), np.array([4, 20, 36, EPOCHS])
    curves = predict(weights, instance, rows_of(configs(best), few)).reshape(len(best), len(few), 2)
    typical, seconds = np.median(curves[:, -1, 1]), np.median(curves[:, -1, 0])
    best[2000:] = np.where(rng.rand(1000, 7) < 0.5, best[2000:].round(), best[2000:])
    score = _lowest(weights, instance, best, few)
    best, score = best[np.argsort(score)[:200]], np.sort(score)[:200]
    for width in np.geomspace(0.3, 0.002, 80):
        tried = np.clip(best + width * rng.randn(*best.shape) * (rng.rand(*best.shape) < 0.4), 0, 1)
        new = _lowest(weights, instance, tried, few)
        best, score = np.where((new < score)[:, None], tried, best), np.minimum(new, score)
    return (
        float(
            _lowest(weights, instance, best[np.argsort(score)[:20]], np.arange(1, EPOCHS + 1)).min()
        ),
        float(typical),
        float(seconds),
    )


def _lowest(
    weights: dict[str, np.ndarray], instance: int, unit: np.ndarray, epochs: np.ndarray
) -> np.ndarray:
    """Return the smallest error rate of each configuration at some epochs."""
    return (
        predict(weights, instance, rows_of(configs(unit), epochs))[:, 1]
        .reshape(len(unit), -1)
        .min(axis=1)
    )


def main(folder: Path) -> None:
    weights = weights_of(folder)
    np.savez_compressed(FILE, **weights)
    weights = dict(lcbench.network())
    compare(weights, folder)
    recorded = []
    for instance in weights["instances"]:
        recorded.append(extremes(weights, int(instance)))
        print(instance, *recorded[-1], flush=True)
    lowest, typical, spent = zip(*recorded, strict=True)
    with np.load(FILE) as file:
        kept = {name: file[name] for name in file.files}
    np.savez_compressed(
        FILE, **kept, lowest=np.array(lowest), typical=np.array(typical), seconds=np.array(spent)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
