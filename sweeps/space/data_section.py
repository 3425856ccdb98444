"""Parse the section `data`, some of whose keys may be dimensions.

These keys are `train`, `drop`, `rows`, `weight` and `class_weight`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core import references
from sweeps.core.label_columns import label_columns
from sweeps.core.parameter_schema import allows
from sweeps.core.suggestions import did_you_mean
from sweeps.space.dimension_parser import INVALID, MALFORMED, DimensionParser, Read
from sweeps.space.domains import BRANCHING, RULES, Dimension
from sweeps.space.enumeration import any_key
from sweeps.space.nodes import Mark, Node, scalar
from sweeps.space.parameter_checks import mismatch, to_try_each
from sweeps.space.problems import Problems, check, fragments, report_domains
from sweeps.space.section_models import (
    FOLD_FORMS,
    READ_DEFAULTS,
    SPLIT_FORMS,
    ByColumn,
    ByFolds,
    ByRolling,
    ByTime,
    DataKeys,
    DataSpec,
    ReadKeys,
    Split,
    variant_of,
)
from sweeps.space.templates import Template, dimensions, fill, walk

SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "wine")
CLASS_WEIGHT_TASK = (
    "is only for a classification, but this label is for a regression; leave this key out"
)
SOURCES = "a path, a glob, a URI, sklearn:NAME or module:function"
_REF = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")


class DataSection:
    """Parser of the section `data`.

    Args:
        reader: Parser of the dimensions in the section. It collects the dimensions of the whole
            file.
        folder: Folder of the space file.
        roots: Folders in which the user's modules are looked up.
    """

    def __init__(self, reader: DimensionParser, folder: Path, roots: tuple[Path, ...]):
        self.reader, self.folder, self.roots, self.problems = reader, folder, roots, reader.problems

    def read(self, node: Node, at: Mark) -> tuple[DataSpec | None, dict[str, Template]]:
        """Parse the section.

        Args:
            node: Node of the section in the space file.
            at: Place of the section's key.

        Returns:
            The section, and the template of each tuned key, which has a dimension. The section is
            None if it has a problem. In the section, a tuned `train` is replaced by its first
            source. Other tuned keys have their defaults.
        """
        if not node.is_map:
            check(DataKeys, node, "data", at, self.problems)
            return None, {}
        templates = self._templates(node)
        tuned = {
            key: template
            for key, template in templates.items()
            if any(dimensions(template)) or not whole(template)
        }
        rest = {key: child for key, child in node.value.items() if key not in templates}
        if "train" in templates:
            rest["train"] = Node("parsed", at)
        keys = check(DataKeys, replace(node, value=rest), "data", at, self.problems)
        self.group = node.value["group"].value if "group" in node.value else None
        valid, test = self._splits(node)
        read = check(
            ReadKeys, node.value.get("read", Node(None, at)), "data.read", at, self.problems
        )
        if keys is None:
            return None, tuned
        weight_columns = _texts(templates.get("weight"))
        self._check_columns(node, keys, templates, weight_columns)
        spec = self._spec(keys, valid, test, read=read, weight_columns=weight_columns)
        values = {key: template for key, template in templates.items() if key not in tuned}
        if "train" in tuned and whole(tuned["train"]):
            values |= fill({"train": tuned["train"]}, any_key)
        return variant_of(spec, values), tuned

    def _templates(self, node: Node) -> dict[str, Template]:
        """Parse the keys that may be dimensions."""
        readers: dict[str, Read] = {
            "train": self._train,
            "drop": self._drop,
            "rows": self._rows,
            "weight": self._weight,
            "class_weight": self._class_weight,
        }
        given = {
            key: child
            for key, child in node.value.items()
            if key in readers and child.value is not None
        }
        return {key: readers[key](child, f"data.{key}") for key, child in given.items()}

    def _spec(
        self,
        keys: DataKeys,
        valid: Split | None,
        test: Split | None,
        read: ReadKeys | None,
        weight_columns: tuple[str, ...],
    ) -> DataSpec:
        """Return the section, with the defaults of the tuned keys."""
        return DataSpec(
            keys.train,
            keys.label,
            valid,
            test=test,
            task=keys.task,
            base=self.folder,
            drop_missing_label=keys.drop_missing_label,
            weight_columns=weight_columns,
            ingest=keys.ingest,
            parse=keys.parse or {},
            drop_duplicates=keys.drop_duplicates,
            positive=keys.positive,
            group=keys.group,
            missing=keys.missing or {},
            read=read or READ_DEFAULTS,
        )

    def _check_columns(
        self,
        node: Node,
        keys: DataKeys,
        templates: dict[str, Template],
        weight_columns: tuple[str, ...],
    ) -> None:
        """Check that the keys for the label, weights and dropped columns do not conflict."""
        dropped = set(_texts(templates.get("drop")))
        labels = label_columns(keys.label)
        for name in dropped & set(labels):
            self.problems.add(
                node.value["drop"].mark, "data.drop", f"must not contain the label, `{name}`"
            )
        for name in weight_columns:
            if name in labels:
                text = f"must be another column than the label, `{name}`; name a column of numbers"
                self.problems.add(node.value["weight"].mark, "data.weight", text)
            elif name in dropped:
                text = (
                    f"must not contain `{name}`, the column of data.weight; it is no feature anyway"
                )
                self.problems.add(node.value["drop"].mark, "data.drop", text)
        for key in ("drop_missing_label", "class_weight", "positive"):
            given = templates.get(key) if key in templates else getattr(keys, key)
            if given and (not labels or (key == "positive" and len(labels) > 1)):
                text = "needs `data.label`" + ", of one column" * bool(labels)
                self.problems.add(node.keys[key], f"data.{key}", text)
        if "class_weight" in templates and keys.task == "regression":
            self.problems.add(node.keys["class_weight"], "data.class_weight", CLASS_WEIGHT_TASK)
        elif templates.get("class_weight") is not None and len(labels) > 1:
            text = (
                "needs a label of one column; leave this key out, or give the rows weights with "
                "data.weight"
            )
            self.problems.add(node.keys["class_weight"], "data.class_weight", text)
        if keys.task == "multiclass" and len(labels) > 1:
            text = (
                "multiclass needs a label of one column; with several columns, each has numbers "
                "(regression), or 0 and 1 (binary)"
            )
            self.problems.add(node.keys["task"], "data.task", text)

    # ---- keys that can be tuned

    def _train(self, node: Node, path: str) -> Template:
        """Parse `train`: a source, or a dimension whose options are sources."""
        if called := self._call(node, path):
            self._source(called[0], path, called[0].value)
            return {called[0].value: called[1]}
        if node.is_map and (kind := self.reader.domain(node, path, "options")):
            dim = self.reader.branches(node, path, kind, self._train)
            if isinstance(dim, Dimension) and dim.when:
                self.problems.add(
                    node.keys["when"], path, "is always needed, so it cannot have a `when`"
                )
            return dim
        if not isinstance(node.value, str) or not node.value:
            return self.reader.wrong(
                node, path, f"must be {SOURCES}, got {node.show()}{to_try_each(node)}"
            )
        self._source(node, path, node.value)
        return node.value

    def _drop(self, node: Node, path: str) -> Template:
        """Parse `drop`: a list of columns, or a dimension whose options are lists.

        A column in a list may be a dimension too.
        """
        if node.is_map and (kind := self.reader.domain(node, path, "options")):
            return self.reader.branches(node, path, kind, self._drop)
        if not node.is_list:
            return self.reader.wrong(node, path, f"must be a list of columns, got {node.show()}")
        return tuple(self.reader.column(child, f"{path}.{i}") for i, child in enumerate(node.value))

    def _rows(self, node: Node, path: str) -> Template:
        """Parse `rows`: a fraction of the train rows, or a dimension whose values are fractions."""
        kind = self.reader.domain(node, path, "floats") if node.is_map else None
        if kind in (*BRANCHING, MALFORMED):
            return self.reader.branches(node, path, str(kind), self._rows)
        if kind:
            if RULES[kind].integer or "lower" not in RULES[kind].args:
                return self.reader.wrong(
                    node,
                    path,
                    "must be a fraction of the rows, a grid, a choice or a range of fractions, "
                    f"got {node.show()}",
                )
            dim = self.reader.numbers(node, path, kind)
            if isinstance(dim, Dimension) and not (
                dim.lower is not None and dim.lower > 0 and dim.upper is not None and dim.upper <= 1
            ):
                return self.reader.wrong(
                    node, path, f"all values must be above 0 and at most 1, got {node.show()}"
                )
            return dim
        rule = fragments(DataKeys)["rows"]
        if node.value is None or not allows(rule, node.plain()):
            return self.reader.wrong(node, path, mismatch(rule, node))
        return float(node.value)

    def _weight(self, node: Node, path: str) -> Template:
        """Parse `weight`: the name of a column, or a dimension whose options are names or null."""
        if node.is_map and (kind := self.reader.domain(node, path, "options")):
            return self.reader.branches(node, path, kind, self._weight)
        return None if node.value is None else self.reader.column(node, path)

    def _class_weight(self, node: Node, path: str) -> Template:
        """Parse `class_weight`: `balanced`, or a dimension with options `balanced` and null."""
        if node.is_map and (kind := self.reader.domain(node, path, "options")):
            return self.reader.branches(node, path, kind, self._class_weight)
        if node.value in (None, "balanced"):
            return node.value
        return self.reader.wrong(node, path, f"must be balanced, or left out, got {node.show()}")

    # ---- sources and splits

    def _splits(self, node: Node) -> tuple[Split | None, Split | None]:
        """Parse `valid` and `test`, and check that they do not contradict each other."""
        splits = {
            key: self._split(node.value[key], key, node.keys[key])
            for key in ("valid", "test")
            if key in node.value
        }
        valid, test = splits.get("valid"), splits.get("test")
        if valid and test:
            fractions = (valid.fraction or 0, test.fraction or 0)
            if valid == test and valid.kind in ("path", "column"):
                text = "has the same rows as valid; the search must never see the test rows"
                self.problems.add(node.value["test"].mark, "data.test", text)
            elif sum(fractions) >= 1:
                text = (
                    f"valid and test leave no rows to train on: {fractions[0]:g} + "
                    f"{fractions[1]:g} is not below 1"
                )
                self.problems.add(node.value["test"].mark, "data.test", text)
        return valid, test

    def _source(self, node: Node, path: str, text: str) -> None:
        """Check a source that is a scikit-learn dataset or a function. Files are not checked.

        A dataset is written as `sklearn:NAME`, and a function as `module:function`.
        """
        if text.startswith("sklearn:"):
            name = text.removeprefix("sklearn:")
            if name not in SKLEARN:
                self.problems.add(
                    node.mark,
                    path,
                    f"scikit-learn has no data set `{name}`; {did_you_mean(name, SKLEARN)}",
                )
        elif _REF.match(text) and (fault := references.problem(text, self.roots)):
            self.problems.add(node.mark, path, fault)

    def _call(self, node: Node | None, path: str) -> tuple[Node, dict[str, Any]] | None:
        """Return the function and the arguments of a source `{module:function: {argument: value}}`.

        Return None if the source has another form.
        """
        if node is None or not node.is_map or len(node.value) != 1:
            return None
        name, inside = next(iter(node.value.items()))
        if (
            not isinstance(name, str)
            or not _REF.match(name)
            or name.startswith("sklearn:")
            or not (inside.is_map or inside.value is None)
        ):
            return None
        report_domains(inside, path, self.problems)
        for key in inside.value or {}:
            if not isinstance(key, str) or not key.isidentifier():
                self.problems.add(
                    inside.keys[key],
                    f"{path}.{name}",
                    f"an argument's name must be a Python identifier, got {key}",
                )
        return Node(name, node.keys[name], raw=name), inside.plain() or {}

    def _split(self, node: Node, key: str, at: Mark) -> Split | None:
        """Parse `valid` or `test`. Return None if the key is absent or has a problem."""
        path = f"data.{key}"
        if called := self._call(node, path):
            self._source(called[0], path, called[0].value)
            return Split("path", path=called[0].value, args=called[1])
        value = node.value
        if value is None or report_domains(node, path, Problems()):
            # the key is absent, or `check` reports its domains together with the domains of the
            # other keys
            return None
        if isinstance(value, str) and value:
            if isinstance(scalar(value), (int, float)) and not isinstance(scalar(value), bool):
                self.problems.add(
                    node.mark,
                    path,
                    f"a fraction must be a number, got {node.show()} (text); write it without "
                    "quotes",
                )
                return None
            self._source(node, path, value)
            return Split("path", path=value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._fraction(node, path)
        if node.is_map and key == "valid" and "rolling" in value:
            if rolling := check(ByRolling, node, path, at, self.problems):
                return Split("rolling", column=rolling.rolling, folds=rolling.folds)
        elif node.is_map and key == "valid" and "folds" in value:
            if folds := check(ByFolds, node, path, at, self.problems):
                return Split("folds", column=self.group, folds=folds.folds)
        elif node.is_map and {"rolling", "folds"} & set(value):
            self.problems.add(
                node.mark,
                path,
                "cannot be a cross-validation, because the test rows must stay the same; only "
                "valid can",
            )
        elif node.is_map and "column" in value:
            if by := check(ByColumn, node, path, at, self.problems):
                return Split("column", column=by.column, value=by.value)
        elif node.is_map and "time" in value:
            if last := check(ByTime, node, path, at, self.problems):
                return Split("time", column=last.time, fraction=last.last)
        else:
            forms = f"{SPLIT_FORMS}; or {FOLD_FORMS}" if key == "valid" else SPLIT_FORMS
            self.problems.add(node.mark, path, f"must be {forms}, got {node.show()}")
        return None

    def _fraction(self, node: Node, path: str) -> Split | None:
        """Return the split of a fraction of the rows. Return None after a problem."""
        if 0 < node.value < 1:
            kind = "fraction" if self.group is None else "group"
            return Split(kind, column=self.group, fraction=float(node.value))
        self.problems.add(
            node.mark, path, f"a fraction must be above 0 and below 1, got {node.show()}"
        )
        return None


def _texts(template: Template) -> tuple[str, ...]:
    """Return every distinct text in a template, in the order of the file."""
    return tuple(dict.fromkeys(part for part in walk(template) if isinstance(part, str)))


def whole(template: Template) -> bool:
    """Return True if every part of a template could be parsed."""
    return all(part is not INVALID for part in walk(template))
