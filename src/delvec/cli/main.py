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
from delvec.cli.sections import COMMANDS, SECTIONS
from delvec.cli.usage import asks_for_json, known_options, usage_errors
from delvec.errors import DelvecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from click.shell_completion import CompletionItem

    from delvec.cli.output import Output

__all__ = ["command", "group", "main"]

_HELP: Final = ("-h", "--help")
_AS_JSON: Final = "delvec.as_json"


class _Command(click.Command):
    """A command with `-h` in any context: click keeps the help option of the first it sees."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_HELP)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; see `known_options`."""
        with known_options(before_command=isinstance(self, click.Group)):
            return super().parse_args(ctx, args)


class _LazyGroup(_Command, click.Group):
    """A group whose commands are in modules of the same names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"delvec.cli.{cmd_name.replace('-', '_')}")
        found: click.Command = module.command
        return found

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        *more: Any,  # noqa: ANN401
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Parse the options before the command; with `--json` wrong ones are told in JSON."""
        as_json = asks_for_json(args)
        with usage_errors(as_json=as_json):
            context = super().make_context(info_name, args, *more, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; Ctrl-C while its module is imported has the same exit code as later."""
        try:
            with usage_errors(as_json=ctx.meta[_AS_JSON]):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            from delvec.cli.exits import ExitCode  # noqa: PLC0415

            click.echo("Error: interrupted, nothing was written", err=True)
            sys.exit(ExitCode.INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for one that does not exist names those that are near."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415

            near = get_close_matches(name.replace("_", "-"), COMMANDS)
            hint = f"did you mean {' or '.join(near)}?" if near else "delvec --help lists all."
            raise click.UsageError(f"no such command {name!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command; no command is imported for that."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        named = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)


class _Group(_Command, click.Group):
    """A few commands about one thing, in one module."""


def group(name: str, text: str, commands: Mapping[click.Command, str]) -> click.Group:
    """Return a group of commands, each with its short help: `delvec NAME COMMAND`."""
    for each, short in commands.items():
        each.short_help = short
    return _Group(name, {each.name or "": each for each in commands}, help=text)


@click.group(cls=_LazyGroup)
@click.version_option(__version__, "-V", "--version", message="delvec %(version)s")
@click.option(
    "--allow-path",
    "allow_paths",
    multiple=True,
    metavar="PREFIX",
    help="A folder outside of the table that it may lead to, as a clone does, and no other; may be"
    " repeated.",
)
def main(allow_paths: Sequence[str]) -> None:
    """Row-level deletes for Delta Lake and Apache Iceberg.

    A Delta table is named by its path or URI, an Iceberg table by its name in a catalog, such as
    lake.db.orders.

    Every command takes --json, every one that changes a table --dry-run, every one that starts
    Spark --master, --conf and --package. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found,
    4 damaged, 5 not supported, 6 conflict, 7 different rows, 8 traces left, 130 interrupted, 141
    nobody reads the output.
    """


def command(
    name: str, unfinished: str = "nothing was written"
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function a command with an `Output` and exit codes.

    Args:
        name: Its name.
        unfinished: What is true if Ctrl-C ends it before a commit.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(*args: Any, as_json: bool, **kwargs: Any) -> None:  # noqa: ANN401
            from delvec.cli.output import ClosedPipeError, JsonOutput, TextOutput  # noqa: PLC0415

            output = JsonOutput() if as_json else TextOutput()
            try:
                _run(lambda: function(output, *args, **kwargs), output, unfinished)
            except ClosedPipeError:
                from delvec.cli.exits import end_without_reader  # noqa: PLC0415

                end_without_reader()

        option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
        return click.command(name, cls=_Command)(option(run))

    return decorate


def _run(function: Callable[[], None], output: Output, unfinished: str) -> None:
    """Run a command; its errors become messages and exit codes."""
    with _listed_commits() as commits:
        try:
            function()
        except DelvecError as error:
            from delvec.cli.exits import exit_code  # noqa: PLC0415

            output.error(error)
            sys.exit(exit_code(error))
        except KeyboardInterrupt:
            from delvec.cli.exits import CommandInterruptedError, ExitCode  # noqa: PLC0415

            done = "; ".join(commits) or unfinished
            output.error(CommandInterruptedError(f"interrupted, {done}"))
            sys.exit(ExitCode.INTERRUPTED)


@contextmanager
def _listed_commits() -> Iterator[list[str]]:
    """List what the log says of commits in the block, for a command that is interrupted."""
    found: list[str] = []

    def listed(record: logging.LogRecord) -> bool:
        from delvec.delta.write.commit import COMMITTED, UNKNOWN  # noqa: PLC0415

        if record.msg in (COMMITTED, UNKNOWN) or getattr(record, "is_commit", False):
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
