"""Parse the section `data`, some of whose keys may be dimensions.

These keys are `train`, `drop`, `rows`, `weight` and `class_weight`.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.json_values import is_number
from sweeps.core.label_columns import label_columns
from sweeps.core.plugins import references
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.domains import RULES, Dimension
from sweeps.space.model.enumeration import any_key
from sweeps.space.model.templates import Sections, Template, dimensions, fill, walk
from sweeps.space.parse.dimension_parser import DimensionParser, Read
from sweeps.space.parse.nodes import INVALID, Node
from sweeps.space.parse.parameter_checks import mismatch, to_try_each
from sweeps.space.parse.section_checks import check, domains_in, fragments, report_domains
from sweeps.space.schema.parameter_schema import allows
from sweeps.space.yaml.scalars import Scalar, scalar

from .data_models import (
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
        self.reader = reader
        self.folder = folder
        self.roots = roots

    def read(self, node: Node) -> tuple[DataSpec | None, Sections]:
        """Parse the section.

        Args:
            node: Node of the section in the space file.

        Returns:
            The section, and the template of each tuned key, which has a dimension. The section is
            None if it has a problem. In the section, a tuned `train` is replaced by its first
            source. Other tuned keys have their defaults.
        """
        if not node.is_map:
            check(DataKeys, node)
            return None, {}
        templates = self._templates(node)
        # A template with a problem is treated as tuned, so that `DataSpec` gets no invalid value.
        tuned = {
            key: template
            for key, template in templates.items()
            if any(dimensions(template)) or not is_parsed(template)
        }
        other_nodes = {key: child for key, child in node.items() if key not in templates}
        if "train" in templates:
            # `train` is required and already parsed, so any text may take its place.
            other_nodes["train"] = replace(node.value["train"], value="parsed")
        keys = check(DataKeys, replace(node, value=other_nodes))
        self.group = node.get("group").value  # `_split` and `_fraction` read it
        valid, test = self._splits(node)
        read = check(ReadKeys, node.get("read"))
        if keys is None:
            return None, tuned
        weight_columns = _texts(templates.get("weight"))
        self._check_columns(node, keys, templates, weight_columns)
        # `DataSpec` has the keys of `DataKeys`, three of which have been parsed here.
        parsed = {"valid": valid, "test": test, "read": read or READ_DEFAULTS}
        spec = DataSpec(**{**vars(keys), **parsed}, base=self.folder, weight_columns=weight_columns)
        constants = {key: template for key, template in templates.items() if key not in tuned}
        if "train" in tuned and is_parsed(tuned["train"]):
            constants |= fill({"train": tuned["train"]}, any_key)
        return variant_of(spec, constants), tuned

    def _templates(self, node: Node) -> Sections:
        """Parse the keys that may be dimensions."""
        readers: dict[str, Read] = {
            "train": self._train,
            "drop": self._drop,
            "weight": self._weight,
            "class_weight": self._class_weight,
        }
        templates = {}
        for key, child in node.items():
            if key == "rows" and child.value is not None:
                templates[key] = self.reader.value(
                    child, self._rows, values="floats", numbers=self._range_of_rows
                )
            elif key in readers and child.value is not None:
                templates[key] = self.reader.value(child, readers[key])
        train = templates.get("train")
        if isinstance(train, Dimension) and train.when:
            node.value["train"].wrong(
                "is always needed, so it cannot have a `when`", node.find("train.when").at
            )
        return templates

    def _check_columns(
        self, node: Node, keys: DataKeys, templates: Sections, weight_columns: tuple[str, ...]
    ) -> None:
        """Check that the keys for the label, weights and dropped columns do not conflict."""
        dropped = set(_texts(templates.get("drop")))
        labels = label_columns(keys.label)
        for name in dropped & set(labels):
            node.value["drop"].wrong(f"must not contain the label, `{name}`")
        for name in weight_columns:
            if name in labels:
                text = f"must be another column than the label, `{name}`; name a column of numbers"
                node.value["weight"].wrong(text)
            elif name in dropped:
                text = (
                    f"must not contain `{name}`, the column of data.weight; it is no feature anyway"
                )
                node.value["drop"].wrong(text)
        for key in ("drop_missing_label", "class_weight", "positive"):
            value = templates[key] if key in templates else getattr(keys, key)
            if value and not labels:
                node.value[key].wrong_key("needs `data.label`")
            elif value and key == "positive" and len(labels) > 1:
                node.value[key].wrong_key("needs `data.label`, of one column")
        class_weight = node.get("class_weight")
        if "class_weight" in templates and keys.task == "regression":
            class_weight.wrong_key(CLASS_WEIGHT_TASK)
        elif templates.get("class_weight") is not None and len(labels) > 1:
            text = (
                "needs a label of one column; leave this key out, or give the rows weights with "
                "data.weight"
            )
            class_weight.wrong_key(text)
        if keys.task == "multiclass" and len(labels) > 1:
            text = (
                "multiclass needs a label of one column; with several columns, each has numbers "
                "(regression), or 0 and 1 (binary)"
            )
            node.value["task"].wrong_key(text)

    # ---- keys that can be tuned

    def _train(self, node: Node) -> Template:
        """Parse a source."""
        if (call := self._call(node)) is not None:
            return {**call}
        if not isinstance(node.value, str) or not node.value:
            return node.wrong(f"must be {SOURCES}, got {node.show()}{to_try_each(node)}")
        if fault := self._source_problem(node.value):
            return node.wrong(fault)
        return node.value

    def _drop(self, node: Node) -> Template:
        """Parse a list of columns. A column in the list may be a dimension."""
        if not node.is_list:
            return node.wrong(f"must be a list of columns, got {node.show()}")
        return self.reader.columns(node)

    def _rows(self, node: Node) -> Template:
        """Parse a fraction of the train rows."""
        rule = fragments(DataKeys)["rows"]
        if node.value is None or not allows(rule, node.plain()):
            return node.wrong(mismatch(rule, node))
        return float(node.value)

    def _range_of_rows(self, node: Node, kind: str) -> Template:
        """Parse a range of fractions of the train rows."""
        if RULES[kind].integer or "lower" not in RULES[kind].args:
            return node.wrong(
                "must be a fraction of the rows, a grid, a choice or a range of fractions, "
                f"got {node.show()}"
            )
        dim = self.reader.numbers(node, kind)
        if isinstance(dim, Dimension) and not 0 < (dim.lower or 0) < (dim.upper or 0) <= 1:
            return node.wrong(f"all values must be above 0 and at most 1, got {node.show()}")
        return dim

    def _weight(self, node: Node) -> Template:
        """Parse the name of a column. An option of a dimension may also be null."""
        return None if node.value is None else self.reader.column(node)

    def _class_weight(self, node: Node) -> Template:
        """Parse `balanced`. An option of a dimension may also be null."""
        if node.value in (None, "balanced"):
            constant: Scalar = node.value
            return constant
        return node.wrong(f"must be balanced, or left out, got {node.show()}")

    # ---- sources and splits

    def _splits(self, node: Node) -> tuple[Split | None, Split | None]:
        """Parse `valid` and `test`, and check that they do not contradict each other."""
        valid = self._split(node.get("valid"), may_have_folds=True)
        test = self._split(node.get("test"), may_have_folds=False)
        if valid and test:
            valid_fraction = valid.fraction or 0
            test_fraction = test.fraction or 0
            if valid == test and valid.kind in ("path", "column"):
                text = "has the same rows as valid; the search must never see the test rows"
                node.value["test"].wrong(text)
            elif valid_fraction + test_fraction >= 1:
                text = (
                    f"valid and test leave no rows to train on: {valid_fraction:g} + "
                    f"{test_fraction:g} is not below 1"
                )
                node.value["test"].wrong(text)
        return valid, test

    def _source_problem(self, text: str) -> str | None:
        """Return what is wrong with a source that is a scikit-learn dataset or a function.

        A dataset is written as `sklearn:NAME`, and a function as `module:function`. Files are not
        checked.
        """
        if text.startswith("sklearn:"):
            name = text.removeprefix("sklearn:")
            if name not in SKLEARN:
                return f"scikit-learn has no data set `{name}`; {did_you_mean(name, SKLEARN)}"
        elif _REF.match(text):
            return references.problem(text, self.roots)
        return None

    def _call(self, node: Node) -> dict[str, dict[str, Any]] | None:
        """Return a source `{module:function: {argument: value}}` as plain values.

        Return None if the source has another form.
        """
        if not node.is_map or len(node.value) != 1:
            return None
        ((name, arguments),) = node.value.items()
        if not isinstance(name, str) or not _REF.match(name) or name.startswith("sklearn:"):
            return None
        if not arguments.is_map and arguments.value is not None:
            return None
        report_domains(arguments)
        for key, child in arguments.items():
            if not isinstance(key, str) or not key.isidentifier():
                text = f"an argument's name must be a Python identifier, got {key}"
                arguments.wrong(text, child.at)
        if fault := self._source_problem(name):
            node.wrong(fault, arguments.at)
        return {name: arguments.plain() or {}}

    def _split(self, node: Node, may_have_folds: bool) -> Split | None:
        """Parse `valid` or `test`. Return None if the key is absent or has a problem."""
        if call := self._call(node):
            ((function, arguments),) = call.items()
            return Split("path", path=function, args=arguments)
        value = node.value
        if value is None or domains_in(node):
            # the key is absent, or `check` reports its domains together with the domains of the
            # other keys
            return None
        if isinstance(value, str) and value:
            if is_number(scalar(value)):
                node.wrong(
                    f"a fraction must be a number, got {node.show()} (text); write it without "
                    "quotes"
                )
                return None
            if fault := self._source_problem(value):
                node.wrong(fault)
            return Split("path", path=value)
        if is_number(value):
            return self._fraction(node)
        keys = set(value) if node.is_map else set()
        if keys & {"rolling", "folds"} and not may_have_folds:
            node.wrong(
                "cannot be a cross-validation, because the test rows must stay the same; only "
                "valid can"
            )
        elif "rolling" in keys:
            if rolling := check(ByRolling, node):
                return Split("rolling", column=rolling.rolling, folds=rolling.folds)
        elif "folds" in keys:
            if folds := check(ByFolds, node):
                return Split("folds", column=self.group, folds=folds.folds)
        elif "column" in keys:
            if by_column := check(ByColumn, node):
                return Split("column", column=by_column.column, value=by_column.value)
        elif "time" in keys:
            if by_time := check(ByTime, node):
                return Split("time", column=by_time.time, fraction=by_time.last)
        else:
            forms = f"{SPLIT_FORMS}; or {FOLD_FORMS}" if may_have_folds else SPLIT_FORMS
            node.wrong(f"must be {forms}, got {node.show()}")
        return None

    def _fraction(self, node: Node) -> Split | None:
        """Return the split of a fraction of the rows. Return None after a problem."""
        if 0 < node.value < 1:
            kind = "fraction" if self.group is None else "group"
            return Split(kind, column=self.group, fraction=float(node.value))
        node.wrong(f"a fraction must be above 0 and below 1, got {node.show()}")
        return None


def _texts(template: Template) -> tuple[str, ...]:
    """Return every distinct text in a template, in the order of the file."""
    return tuple(dict.fromkeys(part for part in walk(template) if isinstance(part, str)))


def is_parsed(template: Template) -> bool:
    """Return True if every part of a template could be parsed."""
    return all(part is not INVALID for part in walk(template))
