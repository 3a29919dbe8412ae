"""How a command ends: exit codes, wrong usage as text or JSON, and signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from threading import Event, Thread, current_thread, main_thread
from typing import Any, Final, NoReturn

import click

from delvec import errors
from delvec.errors import DelvecError

_LIKE: Final = 0.6  # of 1, as for the names of commands


class ExitCode(IntEnum):
    """Exit codes; 2 is also click's for wrong usage, those above 128 the shell's for signals."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DAMAGED = 4
    UNSUPPORTED = 5
    CONFLICT = 6
    DIFFERENT = 7
    TRACES = 8
    TO_REWRITE = 9
    INTERRUPTED = 130
    NO_READER = 141
    TERMINATED = 143


class CommandInterruptedError(DelvecError):
    """Ctrl-C ended a command."""


_BY_ERROR: tuple[tuple[type[DelvecError], ExitCode], ...] = (
    (errors.InvalidArgumentError, ExitCode.USAGE),
    (errors.ObjectNotFoundError, ExitCode.NOT_FOUND),
    (errors.TableNotFoundError, ExitCode.NOT_FOUND),
    (errors.FormatError, ExitCode.DAMAGED),
    (errors.UnsupportedFeatureError, ExitCode.UNSUPPORTED),
    (errors.ConflictError, ExitCode.CONFLICT),
    (errors.VerificationError, ExitCode.DIFFERENT),
    (CommandInterruptedError, ExitCode.INTERRUPTED),
)


def exit_code(error: DelvecError) -> ExitCode:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)


def end_without_reader() -> NoReturn:
    """End quietly, as a process does that a closed pipe kills: `delvec files t | head -1`."""
    # Python flushes standard output once more when it ends, which would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    sys.exit(ExitCode.NO_READER)


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the arguments; what follows `--` is no option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


@contextmanager
def usage_errors(*, as_json: bool) -> Iterator[None]:
    """Show the usage errors of a block as other errors are with `--json`, if that is asked for."""
    try:
        yield
    except click.UsageError as error:
        if not as_json:
            raise
        from delvec.cli.output import Output  # noqa: PLC0415

        command = "delvec" if error.ctx is None else error.ctx.command_path
        hint = f"{command} --help shows the options and examples"
        facts = {"type": "UsageError", "message": error.format_message(), "hint": hint}
        Output(as_json=True).result({"error": facts})
        sys.exit(error.exit_code)


@contextmanager
def known_options(*, before_command: bool) -> Iterator[None]:
    """Name options instead of one that does not exist only if they are like it."""
    try:
        yield
    except click.NoSuchOption as error:
        near = [each for each in error.possibilities or () if _is_like(each, error.option_name)]
        more = "."
        if near:
            more = f". Did you mean {' or '.join(map(repr, near))}?"
        elif before_command:
            more = " before the command: options come after it, as in delvec history TABLE --json"
        # Versions of click word it differently.
        message = f"No such option {error.option_name!r}{more}"
        raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process as Ctrl-C does, by an exception, and quietly.

    A process that the signal kills leaves a JVM that is being started to itself.
    """
    is_main = current_thread() is main_thread()  # others cannot handle signals
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handle(_number: int, _frame: object) -> None:
        sys.exit(ExitCode.TERMINATED)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopped_by_signals(stop: Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event; a second signal has its previous effect."""
    before: dict[int, Any] = {}

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        # Not in this thread: it may hold the lock of the event, and would deadlock.
        Thread(target=stop.set, daemon=True).start()

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_like(one: str, other: str) -> bool:
    """Return whether options are alike; click compares their dashes too.

    >>> _is_like("--dry-run", "--dryrun"), _is_like("--help", "--where")
    (True, False)
    """
    from difflib import SequenceMatcher  # noqa: PLC0415

    return SequenceMatcher(None, one.lstrip("-"), other.lstrip("-")).ratio() > _LIKE
