from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError, Problem
from sweeps.core.plugins import references
from sweeps.core.text.suggestions import did_you_mean


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "pkg_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "mod.py").write_text(
        textwrap.dedent("""\
        BACKEND = "torch"
        from os import path as aliased
        def train(config):
            import os as inside
            local = 1
        class Model:
            def load(self): ...
            field = 3
        if True:
            late = 1
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "pkg_of_a_user.mod"


@pytest.mark.parametrize("name", ["train", "Model", "Model.load", "late", "aliased"])
def test_names_are_read_from_the_source_without_importing_it(module: Any, name: str) -> None:
    assert references.problem(f"{module}:{name}") is None


@pytest.mark.parametrize("name", ["inside", "local", "load", "field"])
def test_names_inside_of_functions_and_classes_are_not_the_modules(module: Any, name: str) -> None:
    problem = references.problem(f"{module}:{name}")
    assert f"has no `{name}`; valid: BACKEND, Model, aliased, late, train" in str(problem)


def test_the_half_that_fails_is_named(module: Any) -> None:
    for reference, expected in (
        ("pkg_of_a_user.mdo:train", "no module `pkg_of_a_user.mdo`"),
        (f"{module}:trian", "`pkg_of_a_user.mod` has no `trian`; did you mean `train`?"),
        ("no colon", "write `module:attr`"),
        ("a:b:c", "write `module:attr`"),
    ):
        assert expected in str(references.problem(reference))


@pytest.mark.parametrize("failures", [1, references.PARSE_TRIES - 1, references.PARSE_TRIES])
def test_parsing_is_repeated_if_another_thread_disturbed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: Any
) -> None:
    calls = iter(range(100))

    def disturbed(source: Any, parse: Any = ast.parse) -> Any:
        if next(calls) < failures:
            raise SystemError("AST constructor recursion depth mismatch (before=183, after=28)")
        return parse(source)

    (tmp_path / "mine.py").write_text("loss = 1\n")
    monkeypatch.setattr(ast, "parse", disturbed)
    if failures < references.PARSE_TRIES:
        assert isinstance(references.parse_source(tmp_path / "mine.py"), ast.Module)
    else:
        with pytest.raises(SystemError, match="mismatch"):
            references.parse_source(tmp_path / "mine.py")


def test_roots_are_searched_before_the_path(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def f(): ...\n")
    assert references.problem("only_here:f") is not None
    assert references.problem("only_here:f", roots=[tmp_path]) is None


def test_what_cannot_be_read_is_believed() -> None:
    assert references.problem("math:sqrt") is None
    assert references.problem("sklearn.preprocessing:PowerTransformer") is None


def test_resolving_imports_and_names_what_there_is() -> None:
    assert references.resolve("os.path:join") is __import__("os").path.join
    with pytest.raises(references.RefError, match="no module `nowhere`"):
        references.resolve("nowhere:f")
    with pytest.raises(
        references.RefError, match=r"`textwrap` has no `dedant`; the module defines: .*dedent"
    ):
        references.resolve("textwrap:dedant")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "import not_installed_anywhere",
            "ModuleNotFoundError: No module named 'not_installed_anywhere' (fails.py, line 2)",
        ),
        ("settings = {}\nsettings['depth']", "KeyError: 'depth' (fails.py, line 3)"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence (fails.py, line 2)"),
        (
            "import json; json.loads('{')",
            "JSONDecodeError: Expecting property name .*fails.py, line 2",
        ),
        ("def f(:", "SyntaxError: invalid syntax (fails.py, line 2)"),
    ],
)
def test_a_failed_import_is_reported_in_one_line_with_the_users_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: str
) -> None:
    (tmp_path / "fails.py").write_text(f"\n{source}\ndef f(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(references.RefError) as e:
        references.resolve("fails:f")
    assert re.fullmatch(
        f"`fails:f` cannot be imported: {re.escape(error).replace(re.escape('.*'), '.*')}.*",
        str(e.value),
    )


def test_problems_are_lines_and_survive_a_process() -> None:
    import pickle

    error = InputError([Problem("a.yaml:1:2", "x: wrong"), Problem("a.yaml:3:4", "y: wrong")])
    assert str(pickle.loads(pickle.dumps(error))) == "a.yaml:1:2: x: wrong\na.yaml:3:4: y: wrong"
    assert did_you_mean("chioce", ["choice", "grid"]) == "did you mean `choice`?"


def test_an_absent_module_is_reported_with_the_searched_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    monkeypatch.chdir(tmp_path)
    said = references.problem("pkg_in_src.loop:train", [spaces, tmp_path])
    assert said is not None
    assert (
        "no module `pkg_in_src.loop`" in said
        and "./spaces/" in said
        and " ./ " in said
        and "PYTHONPATH" not in said
    )
