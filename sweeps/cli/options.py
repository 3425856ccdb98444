"""Options that several verbs share."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from sweeps.core.errors import InputError
from sweeps.core.files.stores import check_address, is_address
from sweeps.core.text.shell_text import DEFAULT_ROOT, printable

F = TypeVar("F", bound=Callable[..., Any])
# When this process has started, apart from the start of Python, which takes a few hundredths of a
# second.
STARTED = time.monotonic()
# The type of an option or argument that names a file or a folder.
PATH: Any = click.Path(path_type=Path)


def _folder_or_address(value: str | Path) -> str | Path:
    """Return the folder or the address `s3://BUCKET/PREFIX` that `--dir` names."""
    return check_address(str(value), "--dir") if is_address(value) else Path(value)


def _folder(value: str | Path) -> Path:
    """Return the folder that `--dir` names, in commands that do not read from a store."""
    if is_address(value):
        verbs = "run, resume, show, compare, stop, pause, enqueue, export, rerun and gc"
        raise InputError(
            "--dir", f"{value}: must be a folder; only {verbs} take an address in a store"
        )
    return Path(value)


def _root_option(convert: Callable[[str | Path], str | Path], text: str) -> Callable[[F], F]:
    """Return a decorator that adds the option `--dir`, whose value `convert` checks."""
    return click.option(
        "--dir",
        "root",
        type=convert,
        metavar="PATH",
        default=Path(DEFAULT_ROOT),
        show_default=True,
        help=text,
    )


root = _root_option(_folder, "Root folder of all sweeps.")
stored_root = _root_option(_folder_or_address, "Root folder of all sweeps, or s3://BUCKET/PREFIX.")
sweep = click.argument("sweep")
trial = click.argument("trial")
bundle = click.argument("bundle", type=PATH)
trust = click.option(
    "--trust",
    is_flag=True,
    help="Read pickles in the sweep's folder that your key has not signed. Reading a pickle can "
    "run code that it contains.",
)


def _minutes_left(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Subtract the time since the start of this process from `--minutes`."""
    return None if value is None else value - (time.monotonic() - STARTED) / 60


minutes = click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    callback=_minutes_left,
    help="End this command after N minutes, with the export of the best trial.",
)


def _option(name: str, description: str, **settings: Any) -> Callable[[str], Callable[[F], F]]:
    """Return a function that makes an option, given the text about its default.

    The default has another text in each verb, such as "the address of the original run".
    """

    def option(default: str) -> Callable[[F], F]:
        return click.option(name, help=f"{description}  [default: {default}]", **settings)

    return option


address = _option("--address", "Address of a Ray cluster.")
tracking_uri = _option("--tracking-uri", "MLflow tracking URI.")
allowed_hosts = _option(
    "--allowed-hosts", "Allowed values of the Host header.", metavar="HOST[,HOST]"
)
token_file = _option("--token-file", "File with the token.", type=PATH)
token = click.option(
    "--token", help="Bearer token that requests must have. `ps` shows it, so prefer --token-file."
)
host = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
only_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on standard output and nothing else.",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print only the final summary.")


def port(default: int) -> Callable[[F], F]:
    """Return a decorator that adds the option `--port`."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=True,
        help="Port to listen on; 0 picks a free port.",
    )


def share(default: str) -> Callable[[F], F]:
    """Return a decorator that adds the options `--cpus` and `--gpus` to a verb that starts Ray.

    Args:
        default: Text in the help that says which CPUs or GPUs are used by default.
    """

    def decorate(command: F) -> F:
        for name, least in (("GPU", 0), ("CPU", 1)):  # the help shows the last one first
            text = f"Use at most N {name}s at once.  [default: {default}]"
            command = click.option(
                f"--{name.lower()}s", type=click.IntRange(min=least), metavar="N", help=text
            )(command)
        return command

    return decorate


def overrides(text: str) -> Callable[[F], F]:
    """Return a decorator that adds the option `--set`, with this text in the help."""
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)


edited_keys = overrides("Override a key of FILE, such as limits.max_trials=8.")
label = click.option("--label", metavar="COLUMN", help="Column to predict, if FILE is a table.")


def table(command: F) -> F:
    """Add the options about a table that takes the place of a space file."""
    for name, kind, text in (  # the help shows the last one first
        (
            "read",
            str,
            "How a text file is read: keys of `data.read`, such as '{separator: \";\"}'.",
        ),
        (
            "trainer",
            str,
            "Trainer for a table: xgboost, lightgbm or catboost.  [default: all installed ones]",
        ),
        ("metric", str, "Metric to optimize for a table, such as auc.  [default: logloss or rmse]"),
        (
            "task",
            click.Choice(["binary", "multiclass", "regression"]),
            "Task for a table, if sweeps should not infer it from the label.",
        ),
    ):
        command = click.option(f"--{name}", type=kind, help=text)(command)
    return command


class JsonOutput(Protocol):
    """The outcome of a command, which has a JSON object."""

    def to_json(self) -> Mapping[str, object]:
        """Return the JSON object that `--json` prints."""


P = TypeVar("P", bound=JsonOutput)


def echo(outcome: P, as_json: bool, text: Callable[[P], str] = str) -> None:
    """Print the outcome of a command as JSON, or as the text that `text` returns."""
    output = json.dumps(outcome.to_json(), default=str) if as_json else printable(text(outcome))
    click.echo(output)
