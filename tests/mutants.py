"""Change one line of the code at a time, and count how many changes the tests notice.

`python -m tests.mutants --seed 7 -o reports/mutants.md` takes two hours. The seed draws the modules
and the changes (mutants). One run of the quick tests with coverage finds out which tests execute a
line; only these tests run for a mutant of the line. The code is changed in a copy.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TypeGuard

from tests import coverage_contexts

ROOT = Path(__file__).parents[1]
SHORT = (
    "not faults and not browser and not long and not gpu and not frameworks "
    "and not frameworks_all and not extended"
)
QUICK = f"not slow and {SHORT}"
# Tests of lines that only other processes execute, such as those of commands.
WHOLE_SWEEPS = ("tests/test_cli.py", "tests/test_quickstart.py", "tests/test_control.py")
# Options of pytest, as in `make test`.
PROCESSES = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider")
# A module with fewer possible mutants is not drawn.
MIN_MUTANTS = 15
# Time for the tests of one mutant, in seconds. A mutant that takes longer counts as not caught.
TIMEOUT = 240
COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}


@dataclass(frozen=True)
class Mutant:
    """A change of one expression or statement.

    Attributes:
        file: Path of the file below the root.
        line: Number of the line, from 1.
        before: The source text that is replaced.
        after: The new source text.
        start, end: Offsets of `before` in the bytes of the file.
    """

    file: str
    line: int
    before: str
    after: str
    start: int
    end: int

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def find_mutants(file: str, source: bytes) -> list[Mutant]:
    """Return all possible mutants of a file. Docstrings, annotations and imports are left alone."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants = []

    def add(node: ast.expr | ast.stmt, after: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = source[start:end].decode()
        if before != after:
            mutants.append(Mutant(file, node.lineno, before, after, start, end))

    for node in _code_of(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            add(node, f"({left} {COMPARISONS[type(node.ops[0])]} {right})")
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            add(node, f"({word.join(f'({ast.unparse(value)})' for value in node.values)})")
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            add(node, f"(({left}) {OPERATORS[type(node.op)]} ({right}))")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            add(node, f"({ast.unparse(node.operand)})")
        elif isinstance(node, ast.IfExp):
            add(node, f"({ast.unparse(node.orelse)})")
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            add(node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            add(node, repr(node.value + 1 if abs(node.value) < 20 else node.value * 2))
        elif isinstance(node, (ast.If, ast.While)):
            add(node.test, f"(not ({ast.unparse(node.test)}))")
        elif isinstance(node, ast.Return) and node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                add(node, "return None")
        elif _has_effect(node):
            add(node, "pass")
        elif isinstance(node, ast.Continue):
            add(node, "break")
    return mutants


def _code_of(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes below a tree that run and that tests can notice."""
    nodes: list[ast.AST] = []
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_params", "type_comment"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.JoinedStr) or name == "decorator_list" or _is_log(node):
                continue
            nodes += [node, *_code_of(node)]
    return nodes


def _has_effect(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    return isinstance(node, (ast.Raise, ast.AugAssign, ast.Delete))


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("log.")


def draw(seed: int, modules: int, mutants: int) -> list[Mutant]:
    """Draw modules of `sweeps`, and the same number of mutants in each."""
    rng = random.Random(seed)
    by_file = {}
    for path in sorted((ROOT / "sweeps").rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        possible = find_mutants(file, path.read_bytes())
        if len({mutant.line for mutant in possible}) >= MIN_MUTANTS:
            by_file[file] = possible
    drawn = []
    for file in sorted(rng.sample(sorted(by_file), modules)):
        of_line: dict[int, list[Mutant]] = {}
        for mutant in by_file[file]:
            of_line.setdefault(mutant.line, []).append(mutant)
        lines = sorted(rng.sample(sorted(of_line), mutants // modules))
        drawn += [rng.choice(of_line[line]) for line in lines]
    return drawn


class Tests:
    """The quick tests, with the lines that each of them executes.

    They run as in `make test`, in two processes.

    Args:
        copy: A copy of the project, in which the tests run.
        files: Files of which the lines are recorded.
        paths: Test files to run; all if empty.
    """

    def __init__(self, copy: Path, files: list[str], paths: list[str]) -> None:
        self.copy = copy
        (copy / coverage_contexts.CONFIG).write_text(
            f"[run]\ninclude = {','.join(files)}\n"
            "disable_warnings = no-data-collected, module-not-measured\n"
        )
        command = ["-m", "pytest", "-q", "-p", "tests.coverage_contexts", "-m", QUICK, *PROCESSES]
        run(copy, [*command, "--continue-on-collection-errors", *paths], timeout=3600)
        outcomes = json.loads((copy / coverage_contexts.OUTCOMES).read_text())
        # Seconds by node id. Tests that fail without a change are left out.
        self.seconds = {
            node: time for node, (time, has_failed) in outcomes.items() if not has_failed
        }
        for node in outcomes.keys() - self.seconds.keys():
            print(f"fails without a change: {node}", flush=True)
        # Node ids of the tests that execute a line, by file and number of the line.
        self.tests: dict[tuple[str, int], set[str]] = {}
        for data in copy.glob(".coverage.*"):
            for line, nodes in _tests_by_line(data, copy, files).items():
                self.tests.setdefault(line, set()).update(nodes)

    def of(self, mutant: Mutant) -> list[str]:
        """Return what pytest runs for a mutant.

        First come the tests that execute the line, the fastest first. Then come the files that name
        the module, and tests of whole sweeps, because lines may also run in other processes.
        """
        nodes = self.tests.get((mutant.file, mutant.line), set()) & self.seconds.keys()
        dotted = mutant.file.removesuffix(".py").replace("/", ".")
        package, _, name = dotted.rpartition(".")
        imports = rf"from {re.escape(package)} import .*\b{name}\b"
        pattern = re.compile(rf"{re.escape(dotted)}\b|{imports}")
        files = sorted((self.copy / "tests").rglob("test_*.py"))
        naming = [file for file in files if pattern.search(file.read_text())]
        return [
            *sorted(nodes, key=self.seconds.__getitem__),
            *(str(file.relative_to(self.copy)) for file in naming),
            *WHOLE_SWEEPS,
        ]


def _tests_by_line(data: Path, copy: Path, files: list[str]) -> dict[tuple[str, int], set[str]]:
    from coverage.numbits import numbits_to_nums

    lines: dict[tuple[str, int], set[str]] = {}
    with sqlite3.connect(data) as connection:
        rows = connection.execute(
            "select file.path, context.context, line_bits.numbits from line_bits "
            "join file on file.id = line_bits.file_id "
            "join context on context.id = line_bits.context_id where context.context != ''"
        )
        for path, node, bits in rows:
            file = Path(path).relative_to(copy).as_posix()
            if file in files:
                for line in numbits_to_nums(bits):
                    lines.setdefault((file, line), set()).add(node)
    return lines


def run(copy: Path, arguments: list[str], timeout: float) -> int | None:
    """Run Python in a copy of the project. Return the exit status; None if it was too slow."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return None


def outcome(copy: Path, mutant: Mutant, nodes: list[str]) -> str:
    """Run the tests of a mutant. Return `caught`, `too slow` or `not caught`."""
    file = copy / mutant.file
    original = file.read_bytes()
    file.write_bytes(mutant.apply(original))
    try:
        options = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        options += ["--hypothesis-profile", "no-shrinking"]  # which would take most of the time
        status = run(copy, [*options, "-m", SHORT, *nodes], TIMEOUT)
    finally:
        file.write_bytes(original)
    if status is None:
        return "too slow"
    # 0: all tests have passed; 4 and 5: there were none. A change may also end the process.
    return "not caught" if status in (0, 4, 5) else "caught"


def copy_project(folder: Path) -> Path:
    """Copy the files that git knows into a folder, and return the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / "sweeps" / "trainers").symlink_to(folder / "trainers")
    return folder


def report(seed: int, results: list[tuple[Mutant, str]]) -> str:
    """Return the report as Markdown."""
    files = sorted({mutant.file for mutant, _ in results})
    noticed = sum(word == "caught" for _, word in results)
    lines = [
        "# Mutants",
        "",
        f"`python -m tests.mutants --seed {seed}` changed one line at a time, in {len(files)} "
        f"modules that the seed drew. The tests noticed {noticed} of {len(results)} changes "
        f"({100 * noticed / len(results):.0f} %).",
        "",
        "| module | changes | noticed |",
        "|---|---|---|",
    ]
    for file in files:
        words = [word for mutant, word in results if mutant.file == file]
        count = sum(word == "caught" for word in words)
        lines.append(f"| `{file}` | {len(words)} | {count} |")
    lines += ["", "Changes that no test noticed:", "", "| line | before | after |", "|---|---|---|"]
    for mutant, word in results:
        if word != "caught":
            before, after = (
                " ".join(text.split()).replace("|", "\\|")[:70]
                for text in (mutant.before, mutant.after)
            )
            lines.append(f"| `{mutant.file}:{mutant.line}` | `{before}` | `{after}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--modules", type=int, default=20)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--tests", nargs="*", default=[], help="tests to run instead of all")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    mutants = draw(options.seed, options.modules, options.mutants)
    with tempfile.TemporaryDirectory() as folder:
        copies = [copy_project(Path(folder, str(number))) for number in range(2)]
        tests = Tests(copies[0], sorted({mutant.file for mutant in mutants}), options.tests)
        free: Queue[Path] = Queue()
        for copy in copies:
            free.put(copy)

        def try_one(mutant: Mutant) -> tuple[Mutant, str]:
            copy = free.get()
            try:
                result = mutant, outcome(copy, mutant, tests.of(mutant))
            finally:
                free.put(copy)
            print(json.dumps([mutant.file, mutant.line, mutant.before, mutant.after, result[1]]))
            sys.stdout.flush()
            return result

        with ThreadPoolExecutor(len(copies)) as pool:
            results = list(pool.map(try_one, mutants))
    text = report(options.seed, results)
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
