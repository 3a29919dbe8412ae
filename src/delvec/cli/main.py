"""The group of all commands: their names and short help; a module is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from delvec._version import __version__
from delvec.cli import exits
from delvec.errors import DelvecError
from delvec.report.commits import announced
from delvec.report.format import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from delvec.cli.output import Output

SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Look": {
        "inspect": ("inspect", "Show a table at a glance, and what to run next."),
        "detail": ("describe", "Show what a table is made of, in figures."),
        "schema": ("describe", "Show the columns of a table."),
        "properties": ("describe", "Show the properties of a table; set or unset some."),
        "refs": ("refs", "Show the branches and tags of an Iceberg table."),
        "history": ("history", "Show what was done to a table, newest first."),
        "files": ("files", "Show the data files of a table, with deleted rows."),
        "changes": ("history", "Show the rows that changed between two versions."),
        "check": ("check", "Check that files, vectors and deletes are sound."),
        "traces": ("check", "Tell where rows still physically are."),
    },
    "Change rows": {
        "sql": ("sql", "Run SQL statements, or a file of them."),
        "append": ("write", "Add rows to a table."),
        "overwrite": ("write", "Replace all rows of a table, or some, by others."),
        "delete": ("write", "Delete rows of a table."),
        "delete-keys": ("write", "Delete the rows that have some keys."),
        "update": ("write", "Give rows of a table new values."),
        "merge": ("write", "Update, delete and insert rows by those of a source."),
        "restore": ("restore", "Bring a table back to an earlier version."),
    },
    "Change what a table is": {
        "column": ("alter", "Add, rename or drop columns."),
        "constraint": ("alter", "Add or drop CHECK constraints."),
        "feature": ("alter", "Add table features; enable deletion vectors."),
        "branch": ("refs", "Make, drop and move branches of an Iceberg table."),
        "tag": ("refs", "Make and drop tags of an Iceberg table."),
    },
    "Make tables": {
        "create": ("alter", "Make an empty table."),
        "clone": ("restore", "Make a table that shares the data files of another."),
        "convert-to-delta": ("restore", "Make a folder of Parquet files a Delta table."),
        "convert": ("convert", "Bring an Iceberg table to what a Delta table holds."),
        "clean-target": ("vacuum", "Clean up what conversions left in their target."),
    },
    "Maintain Delta tables": {
        "optimize": ("compact", "Put the small files of a table together."),
        "purge": ("compact", "Rewrite the files that have deletion vectors."),
        "vacuum": ("vacuum", "Delete the files that a table no longer needs."),
        "clean-log": ("vacuum", "Delete old commits and checkpoints of a table."),
        "checkpoint": ("compact", "Write a checkpoint of a table."),
        "recompute-statistics": (
            "compact",
            "Compute statistics that are missing or have wide bounds.",
        ),
        "generate-manifest": ("compact", "Write symlink manifests, for readers without Delta."),
        "downgrade": ("restore", "Make a table readable without deletion vectors."),
    },
    "Iceberg tables": {
        "upsert": ("write", "Write rows in place of those with the same keys."),
        "resolve": ("resolve", "Turn equality deletes into deletion vectors."),
        "index": ("resolve", "Make the primary-key index, for resolve."),
        "consolidate": ("compact", "Merge small equality deletes into few."),
        "compact": ("compact", "Rewrite small data files."),
        "unlock": ("compact", "Remove the lock that a dead resolve or compact left."),
        "expire-snapshots": ("vacuum", "Expire snapshots, and delete files only they had."),
        "remove-orphan-files": ("vacuum", "Delete files that no snapshot refers to."),
    },
    "Other": {
        "migrate": ("migrate", "Tell what of delta-spark's and deltalake's calls runs here."),
        "completion": (".main", "Print the script for completion by a shell."),
        "demo": (".demo.demo", "Show what delvec does, step by step."),
    },
}
"""The commands as the help lists them: the module of each, from `commands` on, and its help."""
COMMANDS: Final = {name: found for each in SECTIONS.values() for name, found in each.items()}
UNFINISHED: Final = "nothing was written"
"""What an interrupted command says, unless it may have written something."""
_AS_JSON: Final = "delvec.as_json"
_VARIABLE: Final = "_DELVEC_COMPLETE"


class _Command(click.Command):
    """A command with `-h` in any context: click keeps the help option of the first it sees."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return ["-h", "--help"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with exits.known_options(before_command=isinstance(self, click.Group)):
            return super().parse_args(ctx, args)


class _LazyGroup(_Command, click.Group):
    """A group whose commands are in the modules that `SECTIONS` names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name][0]}", "delvec.cli.commands")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        *more: Any,  # noqa: ANN401
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Parse the options before the command; with `--json` wrong ones are told in JSON."""
        as_json = exits.asks_for_json(args)
        with exits.usage_errors(as_json=as_json):
            context = super().make_context(info_name, args, *more, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; Ctrl-C while its module is imported has the same exit code as later."""
        try:
            with exits.usage_errors(as_json=ctx.meta[_AS_JSON]):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Error: interrupted, nothing was written", err=True)
            sys.exit(exits.ExitCode.INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for one that does not exist names those that are near."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            hint = did_you_mean(name.replace("_", "-"), COMMANDS) or "delvec --help lists all."
            raise click.UsageError(f"no such command {name!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), text) for n, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command; no command is imported for that."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        named = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)


class _Group(_Command, click.Group):
    """A few commands about one thing, in one module."""


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
    4 damaged, 5 not supported, 6 conflict, 7 different rows, 8 traces left, 9 calls to rewrite, 130
    interrupted, 141 nobody reads the output, 143 terminated.
    """


def command(
    name: str, unfinished: str = UNFINISHED
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function a command with an `Output` and exit codes."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(*args: Any, as_json: bool, **kwargs: Any) -> None:  # noqa: ANN401
            from delvec.cli.output import Output  # noqa: PLC0415
            from delvec.cli.terminal import ClosedPipeError  # noqa: PLC0415

            output = Output(as_json=as_json)
            try:
                _run(lambda: function(output, *args, **kwargs), output, unfinished)
            except ClosedPipeError:  # perhaps while an error was printed
                exits.end_without_reader()

        option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
        return click.command(name, cls=_Command)(option(run))

    return decorate


def group(name: str, text: str, commands: Mapping[click.Command, str]) -> click.Group:
    """Return a group of commands, each with its short help: `delvec NAME COMMAND`."""
    for each, short in commands.items():
        each.short_help = short
    return _Group(name, {each.name or "": each for each in commands}, help=text)


@command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(output: Output, shell: str) -> None:
    """Print the script by which SHELL completes commands, options and the paths of tables.

    \b
    bash (4.4 or later), once, then open a new shell:
      delvec completion bash > ~/.local/share/bash-completion/completions/delvec
    zsh, in ~/.zshrc, after compinit:
      eval "$(delvec completion zsh)"
    fish, once:
      delvec completion fish > ~/.config/fish/completions/delvec.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    if made is None:
        raise AssertionError("click knows all shells of the choice")
    completing = made(main, {}, "delvec", _VARIABLE)
    script = completing.source_template % completing.source_vars()
    output.plain(script)
    output.result({"shell": shell, "script": script})


def _run(function: Callable[[], None], output: Output, unfinished: str) -> None:
    with announced() as commits:
        try:
            function()
        except DelvecError as error:
            output.error(error)
            sys.exit(exits.exit_code(error))
        except KeyboardInterrupt:
            done = "; ".join(commits) or unfinished
            output.error(exits.CommandInterruptedError(f"interrupted, {done}"))
            sys.exit(exits.ExitCode.INTERRUPTED)
