"""Run `sweeps init` in this process."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from sweeps.cli import main


def run(*arguments: Any) -> Any:
    done = invoke_init(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments: Any) -> Any:
    done = invoke_init(*arguments)
    assert done.exit_code == 2, done.output
    return done.output


def invoke_init(*arguments: Any, **options: Any) -> Any:
    """Run `sweeps init`, and return the result of click."""
    return CliRunner().invoke(main, ["init", *map(str, arguments)], **options)
