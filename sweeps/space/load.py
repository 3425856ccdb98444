"""From a space file to a Space, or to every problem it has. Runs no code of the file's and imports no framework."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from sweeps import refs
from sweeps.errors import InputError, nearest
from sweeps.space import spec
from sweeps.space.checks import Problems, check, note_domains
from sweeps.space.domains import Dimension
from sweeps.space.keys import (
    SPLIT_FORMS,
    Backend,
    ByColumn,
    ByGroup,
    ByTime,
    DataKeys,
    DataSpec,
    Limits,
    LoopKeys,
    Objective,
    Scheduler,
    Search,
    Split,
    TrainerSpec,
)
from sweeps.space.nodes import Mark, Node, places, scalar
from sweeps.space.sections import Reader
from sweeps.space.spec import Space
from sweeps.space.yaml12 import MAX_DEPTH, parse, read_text

TOP = ("name", "trainer", "data", "objective", "search", "scheduler", "limits", "space")
SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "wine")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")
_REF = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")


def load(path: str | Path, overrides: Iterable[str] = (), base: str | Path | None = None) -> Space:
    """Read and validate a space file.

    Args:
        path: the file; problems name it as it is given here.
        overrides: `key.path=YAML value`, applied in order before anything is checked.
        base: what relative paths and the user's modules are looked up from; the file's folder if not given.

    Raises:
        InputError: with every problem of the file and the overrides, in the order of their places.
    """
    overrides = tuple(overrides)
    source = str(path)
    problems = Problems()
    text, root = "", None
    try:
        text = read_text(Path(path), source)
        root = parse(text, source)
        if not root.is_map:
            problems.add(root.mark, "", f"a space file is a mapping with keys {', '.join(TOP)}, got {root.show()}")
            root = None
    except InputError as e:
        problems.extend(e.problems)
    for override in overrides:
        root = _override(root, override, problems)
    if root is None or len(problems):
        raise InputError(problems.sorted())
    folder = Path(base).absolute() if base is not None else Path(path).absolute().parent
    return _Loader(root, source, folder, problems).space(Path(path).absolute(), text, overrides)


def _override(root: Node | None, override: str, problems: Problems) -> Node | None:
    """The tree with one `--set` applied to it; without a tree it is only checked."""
    shown = " ".join(override.split())
    mark = Mark("--set " + (shown if len(shown) <= 60 else shown[:59] + "…"))
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        problems.add(mark, "", "must be key.path=value, such as limits.max_trials=8")
        return root
    if len(parts) > MAX_DEPTH:
        problems.add(mark, "", f"nested more than {MAX_DEPTH} deep")
        return root
    try:
        value = parse(text, mark.source, override=True)
    except InputError as e:
        problems.extend(e.problems)
        return root
    try:
        return _put(root, parts, 0, value, mark) if root else None
    except LookupError as e:
        problems.add(mark, "", str(e.args[0]))
        return root


def _put(node: Node, parts: list[str], depth: int, value: Node, mark: Mark) -> Node:
    """A copy of the tree with `value` at a path. A copy, as aliases make several places share a node."""
    if depth == len(parts):
        return value
    part, here = parts[depth], ".".join(parts[:depth])
    if node.is_list:
        if not part.isdigit() or int(part) >= len(node.value):
            raise LookupError(f"{here} is a list of {len(node.value)}; `{part}` is not one of 0 to {len(node.value) - 1}")
        items = list(node.value)
        items[int(part)] = _put(items[int(part)], parts, depth + 1, value, mark)
        return replace(node, value=items)
    if node.value is not None and not node.is_map:
        raise LookupError(f"{here} is {node.show()}, which has no key `{part}`; set {here} as a whole")
    inside = dict(node.value or {})
    marks = dict(node.keys)
    key = next((k for k in inside if str(k) == part), part)
    if key not in inside or depth + 1 == len(parts):
        marks[key] = mark  # what is unknown or missing is then a problem of the override
    inside[key] = _put(inside.get(key, Node(None, mark)), parts, depth + 1, value, mark)
    return replace(node, value=inside, keys=marks)


class _Loader:
    """Reads one tree; every method notes problems and returns None where it cannot return the real thing."""

    def __init__(self, root: Node, source: str, folder: Path, problems: Problems):
        self.root, self.source, self.folder, self.problems = root, source, folder, problems
        self.roots = (folder, Path.cwd())

    def at(self, section: str) -> Mark:
        """Where a section's key stands; the beginning of the file if it is absent."""
        return self.root.keys.get(section, Mark(self.source, 1, 1))

    def node(self, section: str) -> Node:
        return self.root.value.get(section) or Node(None, self.at(section))

    def space(self, path: Path, text: str, overrides: tuple[str, ...]) -> Space:
        for key in self.root.value:
            if key == "when":
                self.problems.add(self.root.keys[key], "when", "conditions (`when:`) are not supported yet")
            elif key not in TOP:
                self.problems.add(self.root.keys[key], str(key), f"unknown key; {nearest(str(key), TOP)}")
        name = self.name(path)
        trainer = self.trainer()
        data = self.data()
        objective = check(Objective, self.node("objective"), "objective", self.at("objective"), self.problems)
        search = check(Search, self.node("search"), "search", self.at("search"), self.problems)
        scheduler = self.scheduler()
        limits = check(Limits, self.node("limits"), "limits", self.at("limits"), self.problems)
        before = len(self.problems)
        reader = Reader(self.problems, self.roots)
        sections = reader.space(self.node("space"))
        if len(self.problems) == before:  # sums over a space with holes would only mislead
            cells = self.count(sections, reader.dimensions, search, limits)
        if len(self.problems):
            raise InputError(self.problems.sorted())
        assert trainer and data and objective and search and scheduler and limits
        return Space(
            name=name,
            path=path,
            text=text,
            overrides=overrides,
            trainer=trainer,
            data=data,
            objective=objective,
            search=search,
            scheduler=scheduler,
            limits=replace(limits, max_trials=limits.max_trials or cells),
            sections=sections,
            dimensions=reader.dimensions,
            cells=tuple(spec.cells_of(sections)),
            shapes=spec.shapes_of(sections.get("scaling", {}), trainer.backend),
            places=places(self.root, self.source),
        )

    def name(self, path: Path) -> str:
        """The sweep's name, which becomes a folder's; by default the file's."""
        node = self.node("name")
        if node.value is None:
            return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")[:100] or "sweep"
        if not note_domains(node, "name", self.problems) and not (isinstance(node.value, str) and _NAME.match(node.value)):
            number = isinstance(node.value, (int, float)) and _NAME.match(node.raw)
            rule = "must be text; quote it" if number else "must be up to 100 of A-Z a-z 0-9 _ - . and not begin with - or ."
            self.problems.add(node.mark, "name", f"{rule}, got {node.show()}")
        return str(node.value)

    def trainer(self) -> TrainerSpec | None:
        node, at = self.node("trainer"), self.at("trainer")
        if node.value is None:
            text = f"is required: one of {', '.join(_trainers())}, or {{loop: module:attr, backend: ...}}"
            self.problems.add(at, "trainer", text)
        elif isinstance(node.value, str):
            return self._named(node, node.value)
        elif not node.is_map:
            self.problems.add(node.mark, "trainer", f"must be a name or a mapping with keys loop, backend, load, got {node.show()}")
        else:
            keys = check(LoopKeys, node, "trainer", at, self.problems)
            for key in ("loop", "load"):
                if isinstance(ref := node.value.get(key, node).value, str) and ref and (fault := refs.problem(ref, self.roots)):
                    self.problems.add(node.value[key].mark, f"trainer.{key}", fault)
            return TrainerSpec(None, keys.loop, keys.backend, keys.load) if keys else None
        return None

    def _named(self, node: Node, name: str) -> TrainerSpec | None:
        module = f"trainers.{name}"
        if ":" in name:
            self.problems.add(node.mark, "trainer", f"a reference needs its backend: {{loop: {node.show()}, backend: torch}}")
        elif not name.isidentifier() or name.startswith("_") or refs.source_of(module) is None:
            text = f"unknown trainer {node.show()} (your own: {{loop: module:attr}}); {nearest(name, _trainers())}"
            self.problems.add(node.mark, "trainer", text)
        else:
            backend = refs.literal(module, "BACKEND")
            if backend in get_args(Backend):
                return TrainerSpec(name, f"{module}:train_func", backend, f"{module}:load")
            text = f"{refs.source_of(module)} must say BACKEND = one of {', '.join(get_args(Backend))}, as a literal"
            self.problems.add(node.mark, "trainer", text)
        return None

    def data(self) -> DataSpec | None:
        node, at = self.node("data"), self.at("data")
        args: dict[str, Any] = {}
        if node.is_map and (called := self._call(node.value.get("train"), "data.train")):
            name, args = called
            node = replace(node, value={**node.value, "train": name})
        keys = check(DataKeys, node, "data", at, self.problems)
        if not node.is_map:
            return None
        if isinstance(train := node.value.get("train", Node(None, at)).value, str):
            self._source(node.value["train"], "data.train", train)
        splits = {key: self._split(node.value[key], key, node.keys[key]) for key in ("valid", "test") if key in node.value}
        valid, test = splits.get("valid"), splits.get("test")
        if valid and test:
            if valid == test and valid.kind in ("path", "column"):
                self.problems.add(node.value["test"].mark, "data.test", "is the same rows as valid; the search must never see them")
            elif (valid.fraction or 0) + (test.fraction or 0) >= 1:
                both = f"{valid.fraction:g} + {test.fraction:g}"
                self.problems.add(node.value["test"].mark, "data.test", f"valid and test leave no rows to train on: {both} is not below 1")
        if keys is None:
            return None
        if keys.label in keys.drop:
            dropped = node.value["drop"].value[keys.drop.index(keys.label)]
            self.problems.add(dropped.mark, "data.drop", f"`{keys.label}` is the label")
        return DataSpec(keys.train, keys.label, valid, test, keys.task, self.folder, keys.drop, args)

    def _source(self, node: Node, path: str, text: str) -> None:
        """Check what can be known of a source without opening it: names and references; files are for who reads them."""
        if text.startswith("sklearn:"):
            name = text.removeprefix("sklearn:")
            if name not in SKLEARN:
                self.problems.add(node.mark, path, f"scikit-learn's `{name}` is not known; {nearest(name, SKLEARN)}")
        elif _REF.match(text) and (fault := refs.problem(text, self.roots)):
            self.problems.add(node.mark, path, fault)

    def _call(self, node: Node | None, path: str) -> tuple[Node, dict[str, Any]] | None:
        """A source as `{module:function: {argument: value}}`: the function's name and its arguments; None if it is written otherwise."""
        if node is None or not node.is_map or len(node.value) != 1:
            return None
        name, inside = next(iter(node.value.items()))
        if not isinstance(name, str) or not _REF.match(name) or name.startswith("sklearn:") or not (inside.is_map or inside.value is None):
            return None
        note_domains(inside, path, self.problems)
        for key in inside.value or {}:
            if not isinstance(key, str) or not key.isidentifier():
                self.problems.add(inside.keys[key], f"{path}.{name}", f"an argument's name must be a name of Python, got {key}")
        return Node(name, node.keys[name], raw=name), inside.plain() or {}

    def _split(self, node: Node, key: str, at: Mark) -> Split | None:
        path = f"data.{key}"
        if called := self._call(node, path):
            self._source(called[0], path, called[0].value)
            return Split("path", path=called[0].value, args=called[1])
        value = node.value
        if value is None or note_domains(node, path, Problems()):
            return None  # absent; or noted with the rest of `data`
        if isinstance(value, str) and value:
            if isinstance(scalar(value), (int, float)) and not isinstance(scalar(value), bool):
                self.problems.add(node.mark, path, f"{node.show()} is text; a fraction is written without quotes")
                return None
            self._source(node, path, value)
            return Split("path", path=value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if 0 < value < 1:
                return Split("fraction", fraction=float(value))
            self.problems.add(node.mark, path, f"a fraction must be above 0 and below 1, got {node.show()}")
            return None
        if node.is_map and "column" in value:
            if by := check(ByColumn, node, path, at, self.problems):
                return Split("column", column=by.column, value=by.value)
        elif node.is_map and "time" in value:
            if last := check(ByTime, node, path, at, self.problems):
                return Split("time", column=last.time, fraction=last.last)
        elif node.is_map and "group" in value:
            if part := check(ByGroup, node, path, at, self.problems):
                return Split("group", column=part.group, fraction=part.part)
        else:
            self.problems.add(node.mark, path, f"must be {SPLIT_FORMS}, got {node.show()}")
        return None

    def scheduler(self) -> Scheduler | None:
        node, at = self.node("scheduler"), self.at("scheduler")
        found = check(Scheduler, node, "scheduler", at, self.problems)
        if found is None:
            return None
        if node.value and node.value.get("name", Node(None, at)).value is None:
            self.problems.add(at, "scheduler.name", "is required beside other keys: asha or none")
        elif found.name == "asha" and found.max_t is None:
            self.problems.add(at, "scheduler.max_t", "is required by asha: the report at which a trial ends")
        elif found.name == "asha" and found.max_t is not None and found.grace_period > found.max_t:
            mark = cast("dict[str, Node]", node.value).get("grace_period", Node(None, at)).mark
            self.problems.add(mark, "scheduler.grace_period", f"must be at most max_t, {found.max_t}, got {found.grace_period}")
        return found

    def count(self, sections: dict[str, Any], dims: tuple[Dimension, ...], search: Search | None, limits: Limits | None) -> int:
        """The number of cells, after holding it and the shapes against the limits."""
        cells = spec.count_cells(sections)
        if cells > spec.MAX_CELLS:
            self.problems.add(self.at("space"), "space", f"the grids make {cells} cells, more than {spec.MAX_CELLS}; make some a choice")
            return cells
        shapes = spec.count_variants(sections.get("scaling", {}))
        if shapes > spec.MAX_SHAPES:
            mark = self.node("space").keys["scaling"]
            self.problems.add(mark, "scaling", f"makes {shapes} combinations, more than {spec.MAX_SHAPES}; give fewer options")
        sampled = [dim.name for dim in dims if not dim.is_grid]
        if search and search.algorithm == "grid" and sampled:
            mark = self.node("search").value["algorithm"].mark
            text = f"grid needs grids alone; sampled: {', '.join(sampled[:5])}{', ...' if len(sampled) > 5 else ''}"
            self.problems.add(mark, "search.algorithm", text)
        if limits and limits.max_trials and limits.max_trials < cells:
            mark = self.node("limits").value["max_trials"].mark
            text = f"must be at least the number of grid cells, {cells}, got {limits.max_trials}"
            self.problems.add(mark, "limits.max_trials", text)
        elif limits and not limits.max_trials and sampled:
            text = f"is required, as {sampled[0]} is sampled: how many trials in all (at least the number of grid cells, {cells})"
            self.problems.add(self.at("limits"), "limits.max_trials", text)
        return cells


def _trainers() -> list[str]:
    """The names of our trainers: the files of the trainers package."""
    folders = [Path(place or ".") / "trainers" for place in sys.path]
    if (init := refs.source_of("trainers")) is not None:
        folders.insert(0, init.parent)
    found = next((folder for folder in folders if folder.is_dir()), None)
    return sorted(file.stem for file in found.glob("*.py") if not file.stem.startswith("_")) if found else []
