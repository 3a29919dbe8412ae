"""Wrong usage as JSON, for callers that gave `--json`; click itself prints text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["asks_for_json", "known_options", "usage_errors"]

_LIKE: Final = 0.6  # of 1, as for the names of commands


class _JsonUsageError(click.ClickException):
    """A usage error of click that shows itself as other errors are shown with `--json`."""

    exit_code = click.UsageError.exit_code

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message())
        context = error.ctx
        self.command = "delvec" if context is None else context.command_path

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        """Print the document to standard output."""
        from delvec.cli.output import JsonOutput  # noqa: PLC0415

        hint = f"{self.command} --help shows the options and examples"
        facts = {"type": "UsageError", "message": self.message, "hint": hint}
        JsonOutput().result({"error": facts})


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the arguments; what follows `--` is no option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


@contextmanager
def known_options(*, before_command: bool) -> Iterator[None]:
    """Name options instead of one that does not exist only if they are like it.

    Args:
        before_command: Whether these are the options of `delvec` itself, or of a group.
    """
    try:
        yield
    except click.NoSuchOption as error:
        near = [each for each in error.possibilities or () if _is_like(each, error.option_name)]
        message = f"No such option {error.option_name!r}"  # versions of click word it differently
        if near:
            message += f". Did you mean {' or '.join(map(repr, near))}?"
        elif before_command:
            message += (
                " before the command: options come after it, as in delvec history TABLE --json"
            )
        else:
            message += "."
        raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error


def _is_like(one: str, other: str) -> bool:
    """Return whether options are alike; click compares their dashes too.

    >>> _is_like("--dry-run", "--dryrun"), _is_like("--help", "--where")
    (True, False)
    """
    from difflib import SequenceMatcher  # noqa: PLC0415

    return SequenceMatcher(None, one.lstrip("-"), other.lstrip("-")).ratio() > _LIKE


@contextmanager
def usage_errors(*, as_json: bool) -> Iterator[None]:
    """Make the usage errors of a block such that click shows them as JSON, if that is asked for."""
    try:
        yield
    except click.UsageError as error:
        if not as_json:
            raise
        raise _JsonUsageError(error) from error
