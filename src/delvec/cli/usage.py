"""Wrong usage as JSON, for callers that gave `--json`; click itself prints text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["asks_for_json", "usage_errors"]


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
def usage_errors(*, as_json: bool) -> Iterator[None]:
    """Make the usage errors of a block such that click shows them as JSON, if that is asked for."""
    try:
        yield
    except click.UsageError as error:
        if not as_json:
            raise
        raise _JsonUsageError(error) from error
