"""Run `sweeps init` in this process."""

from __future__ import annotations

from click.testing import CliRunner

from sweeps.cli import main


def run(*arguments):
    done = invoke_init(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments):
    done = invoke_init(*arguments)
    assert done.exit_code == 2, done.output
    return done.output


def invoke_init(*arguments, **options):
    """Run `sweeps init`, and return the result of click."""
    return CliRunner().invoke(main, ["init", *map(str, arguments)], **options)
