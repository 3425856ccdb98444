"""The verb `completion`, and functions that complete the names of sweeps and trials."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from sweeps.cli.group import main
from sweeps.core.command_hints import DEFAULT_ROOT
from sweeps.core.errors import SweepsError
from sweeps.core.stores import is_address
from sweeps.core.sweep_folder import SweepFolder, is_sweep

SHELLS = ("bash", "zsh", "fish")


def complete_sweep(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the sweeps of the root folder whose names begin with a text, and `latest`.

    If there are none, the shell offers folders.

    Sweeps in a store are not listed, because the storage may not answer for a minute.
    """
    root, folders = _root(ctx), CompletionItem(incomplete, type="dir")
    if "/" in incomplete or root is None:
        return [folders]
    names = sorted(path.name for path in root.iterdir() if is_sweep(path)) if root.is_dir() else []
    latest = ["latest"] if names else []
    # Click's script for bash forgets the names that come before an item of type `dir`.
    return [
        folders,
        *(CompletionItem(name) for name in (*names, *latest) if name.startswith(incomplete)),
    ]


def complete_trial(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ids of the trials of the sweep that the command line names, and `best` for `sweeps show`."""
    from sweeps.controller.sweep_lookup import find

    # If an option such as `--trial` has no value yet, Click leaves the arguments in `args`.
    root, sweep = _root(ctx), ctx.params.get("sweep") or next(iter(ctx.args), None)
    if root is None or not sweep:
        return []
    ids: list[str] = []
    with contextlib.suppress(SweepsError, OSError):
        ids = sorted(
            path.name
            for path in SweepFolder(find(str(sweep), root)).trials.iterdir()
            if path.is_dir()
        )
    best = ["best"] if ids and ctx.info_name == "show" else []
    return [CompletionItem(name) for name in (*best, *ids) if name.startswith(incomplete)]


def _root(ctx: click.Context) -> Path | None:
    """Return the root folder that the command line names with `--dir`; None if it names a store."""
    root = ctx.params.get("root") or DEFAULT_ROOT
    return None if is_address(root) else Path(root)


@main.command(short_help="Print a script that completes commands, sweeps and trials.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script with which SHELL completes commands, options, and the names of sweeps and trials.

    \b
    bash    add to ~/.bashrc:                    eval "$(sweeps completion bash)"
    zsh     add to ~/.zshrc, after compinit:     eval "$(sweeps completion zsh)"
    fish    run once:    sweeps completion fish > ~/.config/fish/completions/sweeps.fish
    """  # noqa: D301 - Click keeps the lines of a paragraph that begins with the character \b. A raw docstring would not contain it.
    found = get_completion_class(shell)
    assert found is not None, "Click supports each of these shells"
    click.echo(found(main, {}, "sweeps", "_SWEEPS_COMPLETE").source())
