"""The exit codes of the command."""

from __future__ import annotations

from enum import IntEnum

from delvec.errors import (
    ConflictError,
    DelvecError,
    FormatError,
    InvalidArgumentError,
    ObjectNotFoundError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VerificationError,
)

__all__ = ["CommandInterruptedError", "ExitCode", "exit_code"]


class ExitCode(IntEnum):
    """Exit codes; 2 is also click's for an invalid command line, 130 the shell's for Ctrl-C."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DAMAGED = 4
    UNSUPPORTED = 5
    CONFLICT = 6
    DIFFERENT = 7
    TRACES = 8
    INTERRUPTED = 130


class CommandInterruptedError(DelvecError):
    """Ctrl-C ended a command."""


_BY_ERROR: tuple[tuple[type[DelvecError], ExitCode], ...] = (
    (InvalidArgumentError, ExitCode.USAGE),
    (ObjectNotFoundError, ExitCode.NOT_FOUND),
    (TableNotFoundError, ExitCode.NOT_FOUND),
    (FormatError, ExitCode.DAMAGED),
    (UnsupportedFeatureError, ExitCode.UNSUPPORTED),
    (ConflictError, ExitCode.CONFLICT),
    (VerificationError, ExitCode.DIFFERENT),
    (CommandInterruptedError, ExitCode.INTERRUPTED),
)


def exit_code(error: DelvecError) -> ExitCode:
    """Return the exit code for an error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)
