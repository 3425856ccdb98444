"""The verb that writes a space file: `init`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sweeps.cli import options
from sweeps.cli.group import main
from sweeps.core.command_hints import printable, shell_quoted
from sweeps.core.errors import InputError, Problem

if TYPE_CHECKING:
    from sweeps.scaffold.from_data import Table
    from sweeps.space import Space

Found = TypeVar("Found")
DEFAULT = Path("space.yaml")
_SOURCES = ("--data", "--from-wandb", "--from-optuna", "--from-objective")


@main.command(short_help="Write a space file from data, a W&B sweep or an Optuna study.")
@click.argument("file", type=options.PATH, default=DEFAULT)
@click.option(
    "--data",
    default=None,
    metavar="PATH",
    help="Table to train on: a CSV, TSV, JSON lines or Parquet file, a folder, a glob or a URI.",
)
@click.option("--label", default=None, metavar="COLUMN", help="Column of --data to predict.")
@options.table
@click.option(
    "--from-wandb",
    type=options.PATH,
    default=None,
    metavar="FILE",
    help="Configuration of a W&B sweep, such as sweep.yaml.",
)
@click.option(
    "--from-optuna",
    default=None,
    metavar="STORAGE",
    help="Optuna study: an SQLite or journal file, or the URL of a database.",
)
@click.option(
    "--study",
    default=None,
    metavar="NAME",
    help="Name of the study in --from-optuna.  [default: its only study]",
)
@click.option(
    "--from-objective",
    default=None,
    metavar="MODULE:FUNCTION",
    help="Optuna objective. It is run once.",
)
@click.option(
    "--direction",
    "directions",
    multiple=True,
    type=click.Choice(["minimize", "maximize"]),
    help="Direction of --from-objective, once for each value that it returns.  [default: minimize]",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def init(
    file: Path,
    data: str | None,
    label: str | None,
    task: str | None,
    metric: str | None,
    trainer: str | None,
    read: str | None,
    from_wandb: Path | None,
    from_optuna: str | None,
    study: str | None,
    from_objective: str | None,
    directions: tuple[str, ...],
    force: bool,
) -> None:
    """Write the space file FILE (default: space.yaml).

    Without an option, the command asks for a table and its label.
    """
    given = [
        name
        for name, value in zip(
            _SOURCES, (data, from_wandb, from_optuna, from_objective), strict=True
        )
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(given[1], f"cannot be combined with {given[0]}; give one of them")
    for name, value, needed in (
        ("--study", study, from_optuna),
        ("--direction", directions, from_objective),
    ):
        if value and needed is None:
            raise InputError(
                name, f"needs {'--from-optuna' if name == '--study' else '--from-objective'}"
            )
    asked = {"label": label, "task": task, "metric": metric, "trainer": trainer, "read": read}
    for name, value in asked.items():
        if value is not None and given not in (["--data"], []):
            raise InputError(f"--{name}", f"cannot be combined with {given[0]}")
    with _one_line_errors():
        if from_wandb is not None:
            _from_wandb(file, from_wandb, force)
        elif from_optuna is not None:
            _from_optuna(file, from_optuna, study, force)
        elif from_objective is not None:
            _from_objective(file, from_objective, directions or ("minimize",), force)
        else:
            _from_data(file, data, asked, force)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Print each problem in one line, although names that it quotes may contain line feeds."""
    from sweeps.scaffold.yaml_text import one_line

    try:
        yield
    except InputError as e:
        shown = [Problem(one_line(p.place), one_line(p.text)) for p in e.problems]
        raise InputError(shown) from e


def _from_data(file: Path, data: str | None, asked: Mapping[str, Any], force: bool) -> None:
    """Write a space file for a table. `asked` has the fields of `TableRequest`."""
    from sweeps.data.preflight import check_data
    from sweeps.scaffold import from_data, read_table
    from sweeps.scaffold.files import refuse_existing, write_files
    from sweeps.scaffold.table_space import TableRequest, describe_request

    label = asked["label"]
    refuse_existing([file], force)
    asks = _asks()
    if data is None and not asks:
        raise InputError(
            "--data",
            "is required; give a CSV or Parquet file, such as `sweeps init --data rows.csv "
            "--label y`",
        )
    keys, read = read_table.read_keys(asked["read"] or "")
    open_table = functools.partial(read_table.open_table, folder=file.parent, read=keys)
    source, reader, table = open_table(data) if data else _ask("Table (CSV, Parquet)", open_table)

    def describe(column: str) -> Table:
        request = TableRequest(**{**asked, "label": column})
        return describe_request(source, reader, table, request, file.parent)

    if label is None:
        names = table.column_names
        likely = read_table.likely_label(names)
        if not asks:
            text = (
                f"is required; name one of the {len(names)} columns, such as {likely}: "
                f"{', '.join(names[:20])}"
            )
            raise InputError("--label", text + (", ..." if len(names) > 20 else ""))
        click.echo(printable(f"Columns: {', '.join(names)}"))
    found = describe(label) if label is not None else _ask("Column to predict", describe, likely)
    text = from_data.space_text(found, _name_given(file), read)
    space = write_files(file, text, {}, force)
    check_data(space)
    _done(space, file, [file], from_data.choices(found, str(file)), data=True)


def _ask(question: str, use: Callable[[str], Found], default: str | None = None) -> Found:
    """Ask a question until `use` accepts the answer, and return what `use` returns."""

    def value(answer: str) -> Found:
        try:
            return use(answer)
        except InputError as e:
            raise click.UsageError(
                printable("; ".join(problem.text for problem in e.problems))
            ) from None

    answered: Found = click.prompt(question, default=default, value_proc=value)
    return answered


def _name_given(file: Path) -> str:
    """Return the name that a person gave to the space file; "" for the default."""
    return "" if file.name == DEFAULT.name else file.name.partition(".")[0]


def _asks() -> bool:
    """Return whether a person can answer questions."""
    return sys.stdin.isatty()


def _from_wandb(file: Path, config: Path, force: bool) -> None:
    from sweeps.scaffold.files import write_files
    from sweeps.scaffold.from_wandb import space_text
    from sweeps.space.yaml12 import parse, read_text

    text = space_text(parse(read_text(config, str(config)), str(config)), str(config))
    _done(write_files(file, text, {}, force), file, [file])


def _from_optuna(file: Path, storage: str, study: str | None, force: bool) -> None:
    from sweeps.core.secrets import masked
    from sweeps.scaffold.files import write_files
    from sweeps.scaffold.from_optuna import study_texts

    name = module_name(file)
    loop = file.parent / f"{name}.py"
    origin = f"--from-optuna {masked(storage)}"
    texts = study_texts(storage, study, file.stem, origin, name)
    modules = {}
    first = ""
    if not loop.exists():
        modules[loop] = texts.loop
        first = f"move your objective into {shell_quoted(loop)}, then "
    space = write_files(file, texts.space, modules, force)
    _done(space, file, [file, *modules], first=first)


def _from_objective(file: Path, reference: str, directions: tuple[str, ...], force: bool) -> None:
    from sweeps.data.sources import importable
    from sweeps.scaffold.files import refuse_existing, write_files
    from sweeps.scaffold.from_objective import (
        import_objective,
        loop_text,
        notes_of,
        objective_space,
        record,
    )

    loop = file.parent / f"{module_name(file)}.py"
    if reference.partition(":")[0] == loop.stem:
        text = f"{loop} would be overwritten, which has the objective; name another FILE"
        raise InputError("--from-objective", text)
    refuse_existing([file, loop], force)
    # The objective may change the working directory, to which the paths refer.
    notes: list[str] = []
    with importable(file.parent.absolute(), Path.cwd()), contextlib.chdir("."):
        found = record(import_objective(reference, notes), reference, directions)
    found.notes += notes
    name = _name_given(file) or reference.partition(":")[0].rpartition(".")[2]
    space = objective_space(
        name, found, directions, f"{module_name(file)}:train", f"--from-objective {reference}"
    )
    modules = {loop: loop_text(reference, directions)}
    _done(write_files(file, space, modules, force), file, [file, loop])
    for note in notes_of(found)[1:]:
        click.echo(printable(f"note: {note}"), err=True)


def module_name(file: Path) -> str:
    """Return the name of the module that is written beside a space file.

    An example is `space_loop` for `space.yaml`.
    """
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in file.name.partition(".")[0])
    return f"{'_' * stem[:1].isdigit()}{stem}_loop"


def _problems(file: Path) -> list[Problem]:
    """Return the problems of the file that was written, such as a script that is elsewhere."""
    from sweeps.space import load

    try:
        load(file)
    except InputError as e:
        return list(e.problems)
    return []


def _done(
    space: Space,
    file: Path,
    written: list[Path],
    about: Sequence[str] = (),
    data: bool = False,
    first: str = "",
) -> None:
    """Print what was written, lines about it, and what to do next, beginning with `first`."""
    click.echo(printable(f"wrote {' and '.join(map(str, written))}"))
    for text in about:
        click.echo(printable(text))
    for note in (*space.notes, *_problems(file)):
        click.echo(printable(f"note: {note}"), err=True)
    name = shell_quoted(file)
    click.echo(f"next: {first}sweeps plan {name}{' --data' * data}, then sweeps run {name}")
