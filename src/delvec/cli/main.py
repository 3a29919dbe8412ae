"""The group of all commands; the module of a command is imported when it is called."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from delvec._version import __version__
from delvec.errors import DelvecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delvec.cli.output import Output

__all__ = ["command", "main"]

# The short help of each command is here, so that `delvec --help` imports none of them.
_COMMANDS: Final = {
    "append": "Add rows to a table.",
    "changes": "Show the rows that changed between two versions of a table.",
    "check": "Compare the files and deletes of a table with its log or manifests; repair some.",
    "clean-target": "Expire snapshots of a converted table, and delete files it alone had.",
    "compact": "Rewrite the small data files of an Iceberg table.",
    "consolidate": "Merge the small equality deletes of an Iceberg table into few.",
    "convert": "Bring an Iceberg table to what a Delta table holds.",
    "create": "Make an empty table.",
    "delete": "Delete rows of a table.",
    "delete-keys": "Delete the rows of an Iceberg table that have some keys.",
    "demo": "Show what a deletion vector is, and tables that are read and written with some.",
    "detail": "Show what an Iceberg table is made of: files, deletes, branches.",
    "downgrade": "Turn a table into one that readers without deletion vectors open.",
    "files": "Show the data files of a table and what is deleted in each.",
    "history": "Show what was done to a table, newest first.",
    "index": "Make the primary-key index of an Iceberg table, by which resolve finds rows.",
    "inspect": "Show what is in a file of deletion vectors.",
    "merge": "Update, delete and insert rows by those of a source.",
    "optimize": "Put the small files of a table together.",
    "purge": "Rewrite the files of a table that have deletion vectors.",
    "resolve": "Turn the equality deletes of an Iceberg table into deletion vectors.",
    "restore": "Bring a table back to an earlier version.",
    "traces": "Tell where rows of a table still physically are, and when they will be gone.",
    "update": "Give rows of a table new values.",
    "upsert": "Write rows to an Iceberg table in place of those with the same keys.",
    "vacuum": "Delete the files that a table no longer needs.",
}


class _LazyGroup(click.Group):
    """A group whose commands are in modules of the same names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"delvec.cli.{cmd_name.replace('-', '_')}")
        found: click.Command = module.command
        return found

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; Ctrl-C while its module is imported has the same exit code as later."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from delvec.cli.exits import ExitCode  # noqa: PLC0415

            click.echo("Error: interrupted, nothing was written", err=True)
            sys.exit(ExitCode.INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="delvec %(version)s")
def main() -> None:
    """Row-level deletes for Delta Lake and Apache Iceberg.

    Every command takes --json. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found,
    4 damaged, 5 not supported, 6 conflict, 7 different rows, 8 traces left, 130 interrupted.
    """


def command(
    name: str, unfinished: str = "nothing was written"
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function a command with an `Output` and exit codes.

    Args:
        name: Its name.
        unfinished: What is true if Ctrl-C ends it before a commit to a Delta table.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(*args: Any, as_json: bool, **kwargs: Any) -> None:  # noqa: ANN401
            output = _output(as_json=as_json)
            with _listed_commits() as commits:
                try:
                    function(output, *args, **kwargs)
                except DelvecError as error:
                    from delvec.cli.exits import exit_code  # noqa: PLC0415

                    output.error(error)
                    sys.exit(exit_code(error))
                except KeyboardInterrupt:
                    from delvec.cli.exits import CommandInterruptedError, ExitCode  # noqa: PLC0415

                    done = "; ".join(commits) or unfinished
                    output.error(CommandInterruptedError(f"interrupted, {done}"))
                    sys.exit(ExitCode.INTERRUPTED)

        option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
        return click.command(name)(option(run))

    return decorate


@contextmanager
def _listed_commits() -> Iterator[list[str]]:
    """List what the log says of commits in the block, for a command that is interrupted."""
    found: list[str] = []

    def listed(record: logging.LogRecord) -> bool:
        from delvec.delta.write.commit import COMMITTED, UNKNOWN  # noqa: PLC0415

        if record.msg in (COMMITTED, UNKNOWN):
            found.append(record.getMessage())
        return record.levelno >= logging.WARNING

    log = logging.getLogger("delvec")
    level = log.level
    log.setLevel(logging.INFO)
    log.addFilter(listed)
    try:
        yield found
    finally:
        log.removeFilter(listed)
        log.setLevel(level)


def _output(*, as_json: bool) -> Output:
    from delvec.cli.output import JsonOutput, TextOutput  # noqa: PLC0415

    return JsonOutput() if as_json else TextOutput()
