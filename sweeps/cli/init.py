"""The verb that writes a space file: `init`."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sweeps.core.errors import InputError, Problem
from sweeps.core.text.shell_text import printable, shell_quoted

from . import options
from .group import main

if TYPE_CHECKING:
    from sweeps.scaffold.from_data import Table
    from sweeps.scaffold.from_objective import Direction
    from sweeps.space import Space

Answer = TypeVar("Answer")
DEFAULT = Path("space.yaml")
# The sources from which a space file can be written, each with the options that belong to it.
SOURCES = {
    "data": ("label", "task", "metric", "trainer", "read"),
    "from_wandb": (),
    "from_optuna": ("study",),
    "from_objective": ("direction",),
}


@main.command(short_help="Write a space file from data, a W&B sweep or an Optuna study.")
@click.argument("file", type=options.PATH, default=DEFAULT)
@click.option(
    "--data",
    metavar="PATH",
    help="Table to train on: a CSV, TSV, JSON lines or Parquet file, a folder, a glob or a URI.",
)
@click.option("--label", metavar="COLUMN", help="Column of --data to predict.")
@options.table
@click.option(
    "--from-wandb",
    type=options.PATH,
    metavar="FILE",
    help="Configuration of a W&B sweep, such as sweep.yaml.",
)
@click.option(
    "--from-optuna",
    metavar="STORAGE",
    help="Optuna study: an SQLite or journal file, or the URL of a database.",
)
@click.option(
    "--study", metavar="NAME", help="Name of the study in --from-optuna.  [default: its only study]"
)
@click.option(
    "--from-objective", metavar="MODULE:FUNCTION", help="Optuna objective. It is run once."
)
@click.option(
    "--direction",
    multiple=True,
    type=click.Choice(["minimize", "maximize"]),
    help="Direction of --from-objective, once for each value that it returns.  [default: minimize]",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def init(file: Path, force: bool, **values: Any) -> None:
    """Write the space file FILE (default: space.yaml).

    Without an option, the command asks for a table and its label.
    """
    _check_options([name for name, value in values.items() if value])
    with _one_line_errors():
        if values["from_wandb"] is not None:
            _from_wandb(file, values["from_wandb"], force)
        elif values["from_optuna"] is not None:
            _from_optuna(file, values["from_optuna"], values["study"], force)
        elif values["from_objective"] is not None:
            directions: Sequence[Direction] = values["direction"] or ("minimize",)
            _from_objective(file, values["from_objective"], directions, force)
        else:
            table_options = {name: values[name] for name in SOURCES["data"]}
            _from_data(file, values["data"], table_options, force)


def _check_options(options_used: Sequence[str]) -> None:
    """Raise an InputError if the options that a user wrote do not fit together."""
    sources = [name for name in options_used if name in SOURCES]
    if len(sources) > 1:
        text = f"cannot be combined with {_option(sources[0])}; give one of them"
        raise InputError(_option(sources[1]), text)
    source = sources[0] if sources else "data"
    for owner, names in SOURCES.items():
        for name in names:
            if name in options_used and owner != source:
                raise InputError(_option(name), f"needs {_option(owner)}")


def _option(name: str) -> str:
    """Return how a user writes an option."""
    return f"--{name.replace('_', '-')}"


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Print each problem in one line, although names that it quotes may contain line feeds."""
    from sweeps.scaffold.yaml_text import one_line

    try:
        yield
    except InputError as e:
        problems = [Problem(one_line(p.place), one_line(p.text)) for p in e.problems]
        raise InputError(problems) from e


def _from_data(file: Path, data: str | None, options: Mapping[str, Any], force: bool) -> None:
    """Write a space file for a table. `options` has the fields of `TableRequest`."""
    from sweeps.data.checks.preflight import check_data
    from sweeps.scaffold import from_data, read_table
    from sweeps.scaffold.new_files import refuse_existing, write_files
    from sweeps.scaffold.table_space import TableRequest, describe_request

    label = options["label"]
    refuse_existing([file], force)
    is_interactive = sys.stdin.isatty()
    if data is None and not is_interactive:
        raise InputError(
            "--data",
            "is required; give a CSV or Parquet file, such as `sweeps init --data rows.csv "
            "--label y`",
        )
    keys, read = read_table.read_keys(options["read"] or "")
    open_table = functools.partial(read_table.open_table, folder=file.parent, read=keys)
    source, reader, table = open_table(data) if data else _ask("Table (CSV, Parquet)", open_table)

    def describe(column: str) -> Table:
        request = TableRequest(**{**options, "label": column})
        return describe_request(source, reader, table, request, file.parent)

    if label is not None:
        description = describe(label)
    else:
        names = table.column_names
        if not is_interactive:
            raise InputError("--label", f"is required; {read_table.label_hint(names)}")
        click.echo(printable(f"Columns: {', '.join(names)}"))
        description = _ask("Column to predict", describe, read_table.likely_label(names))
    text = from_data.space_text(description, _sweep_name(file), read)
    space = write_files(file, text, {}, force)
    check_data(space)
    _print_result(space, file, [file], from_data.choices(description, str(file)), data=True)


def _ask(question: str, use: Callable[[str], Answer], default: str | None = None) -> Answer:
    """Ask a question until `use` accepts the answer, and return what `use` returns."""

    def value(answer: str) -> Answer:
        """Return the value of an answer. After a `UsageError`, click asks again."""
        try:
            return use(answer)
        except InputError as e:
            raise click.UsageError(
                printable("; ".join(problem.text for problem in e.problems))
            ) from None

    answered: Answer = click.prompt(question, default=default, value_proc=value)
    return answered


def _sweep_name(file: Path) -> str:
    """Return the name that a person gave to the space file; "" for the default."""
    return "" if file.name == DEFAULT.name else file.name.partition(".")[0]


def _from_wandb(file: Path, config: Path, force: bool) -> None:
    """Write a space file for the configuration of a W&B sweep."""
    from sweeps.scaffold.from_wandb import space_text
    from sweeps.scaffold.new_files import write_files
    from sweeps.space.yaml.yaml12 import parse, read_text

    text = space_text(parse(read_text(config, str(config)), str(config)), str(config))
    _print_result(write_files(file, text, {}, force), file, [file])


def _from_optuna(file: Path, storage: str, study: str | None, force: bool) -> None:
    """Write a space file for an Optuna study, and a module for its loop unless it exists."""
    from sweeps.core.text.secrets import masked
    from sweeps.scaffold.from_optuna import study_texts
    from sweeps.scaffold.new_files import write_files

    loop = _loop_file(file)
    origin = f"--from-optuna {masked(storage)}"
    text, code = study_texts(storage, study, file.stem, origin, loop.stem)
    modules = {}
    first_step = ""
    if not loop.exists():
        modules[loop] = code
        first_step = f"move your objective into {shell_quoted(loop)}, then "
    space = write_files(file, text, modules, force)
    _print_result(space, file, [file, *modules], first_step=first_step)


def _from_objective(
    file: Path, reference: str, directions: Sequence[Direction], force: bool
) -> None:
    """Write a space file for an Optuna objective, and the module that runs the objective."""
    from sweeps.data.sources.sources import importable
    from sweeps.scaffold.from_objective import objective_texts
    from sweeps.scaffold.new_files import refuse_existing, write_files

    loop = _loop_file(file)
    module = reference.partition(":")[0]
    if module == loop.stem:
        text = f"{loop} would be overwritten, which has the objective; name another FILE"
        raise InputError("--from-objective", text)
    refuse_existing([file, loop], force)
    name = _sweep_name(file) or module.rpartition(".")[2]
    # The objective may change the working directory, to which the paths refer.
    with importable(file.parent.absolute(), Path.cwd()), contextlib.chdir("."):
        text, code, notes = objective_texts(reference, directions, name, loop.stem)
    _print_result(write_files(file, text, {loop: code}, force), file, [file, loop])
    for note in notes:
        click.echo(printable(f"note: {note}"), err=True)


def _loop_file(file: Path) -> Path:
    """Return the module that is written beside a space file: `space_loop.py` for `space.yaml`."""
    stem = re.sub(r"[^A-Za-z0-9]", "_", file.name.partition(".")[0])
    prefix = "_" if stem[:1].isdigit() else ""  # a module's name must not begin with a digit
    return file.parent / f"{prefix}{stem}_loop.py"


def _problems(file: Path) -> list[Problem]:
    """Return the problems of the file that was written, such as a script that is elsewhere."""
    from sweeps.space import load

    try:
        load(file)
    except InputError as e:
        return list(e.problems)
    return []


def _print_result(
    space: Space,
    file: Path,
    written: list[Path],
    choices: Sequence[str] = (),
    data: bool = False,
    first_step: str = "",
) -> None:
    """Print the result of the command, and what to do next.

    Args:
        space: The space in the file.
        file: The space file.
        written: The files that were written.
        choices: Lines about what was chosen for a table.
        data: True if the next command shall read the data.
        first_step: Text for the user to do first; "" if there is none.
    """
    click.echo(printable(f"wrote {' and '.join(map(str, written))}"))
    for text in choices:
        click.echo(printable(text))
    for note in (*space.notes, *_problems(file)):
        click.echo(printable(f"note: {note}"), err=True)
    name = shell_quoted(file)
    option = " --data" if data else ""
    click.echo(f"next: {first_step}sweeps plan {name}{option}, then sweeps run {name}")
