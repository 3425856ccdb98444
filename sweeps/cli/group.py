"""The command `sweeps`, to which every verb is added. It reports errors without a traceback."""

import functools
import os
import sys
from typing import Any

import click

from sweeps import __version__
from sweeps.core.errors import Interrupted, SweepsError
from sweeps.core.text.secrets import hide_in_output
from sweeps.core.text.shell_text import printable

# Verbs that users look for, and what to use instead.
OTHER_VERBS = {
    "report": "the report of a sweep is `report.html` in its folder, "
    "which `sweeps show SWEEP` prints"
}


class ErrorReportingGroup(click.Group):
    """A command group that prints an error as text without a traceback.

    It exits with the error's exit code.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names, and the other arguments."""
        if args[0] in OTHER_VERBS:
            raise click.UsageError(f"no command `{args[0]}`: {OTHER_VERBS[args[0]]}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self, args: Any = None, *others: Any, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run the command line `args`, then exit. For the other arguments, see click.

        By default, `args` are the arguments of the process.
        """
        run = functools.partial(super().main, args, *others, standalone_mode=False, **options)
        if not standalone_mode:  # as in click's own tests: return a value, and raise errors
            return run()
        hide_in_output(sys.stdout, sys.stderr)
        try:
            sys.exit(run())
        except click.exceptions.NoArgsIsHelpError as e:  # a usage error whose text is the help
            e.show()
            sys.exit(e.exit_code)
        except click.UsageError as e:
            command = e.ctx.command_path if e.ctx else "sweeps"
            message = " ".join(e.format_message().split())
            click.echo(f"{command}: {message}  ({command} --help)", err=True)
            sys.exit(e.exit_code)
        except click.ClickException as e:
            e.show()
            sys.exit(e.exit_code)
        except SweepsError as e:
            click.echo(printable(str(e)), err=True)
            sys.exit(e.exit_code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(Interrupted.exit_code)
        except BrokenPipeError:  # The reader of the output has closed the pipe, as `head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)


@click.group(
    cls=ErrorReportingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="sweeps")
def main() -> None:
    # Click keeps the lines of a paragraph that begins with the character \b.
    # A raw docstring would not contain it.
    """Tune preprocessors, model parameters, data options, workers and GPUs together.

    Export the best trial as one bundle.

    \b
    sweeps init                     write a space file that fits a table
    sweeps validate space.yaml      check the space file
    sweeps plan space.yaml          show trials, resources and disk space before anything starts
    sweeps run space.yaml           search the space and export the best trial
    sweeps resume latest            continue the sweep after Ctrl-C or a crash
    sweeps show latest              show the trials and the best one
    sweeps predict BUNDLE in.csv    predict with the exported bundle
    sweeps serve BUNDLE             predict over HTTP
    """  # noqa: D301
