"""The exit codes of the command."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import NoReturn

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

__all__ = ["CommandInterruptedError", "ExitCode", "end_without_reader", "exit_code"]


class ExitCode(IntEnum):
    """Exit codes; 2 is also click's for wrong usage, 130 and 141 the shell's for two signals."""

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
    NO_READER = 141


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


def end_without_reader() -> NoReturn:
    """End quietly, as a process does that a closed pipe kills: `delvec files t | head -1`."""
    # Python flushes standard output once more when it ends, which would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    sys.exit(ExitCode.NO_READER)
