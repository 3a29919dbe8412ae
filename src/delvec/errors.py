"""Every error that delvec raises on purpose.

All derive from `DelvecError`, and from the builtin exception that fits (`ValueError`, `OSError`,
...), so that code that does not import delvec can catch them too. Errors carry their facts as
attributes, print them in one sentence, end in a `Hint:` where there is a next step, and can be
pickled, because they travel from Spark workers to the driver. What a table says is quoted in them,
and may be hostile: the text of an error has no control characters, is on one line but for the hint,
and is short.

    DelvecError
      FormatError (ValueError)              bytes are wrong: .path .offset .expected .found
        ChecksumError  MagicError  TruncatedError
      InvalidArgumentError (ValueError)     the caller's argument is wrong
      UnknownNameError (AttributeError)     a method that is called otherwise, or is not there
      ConstraintError (ValueError)          rows violate a constraint: .constraint .table
      TableNotFoundError (LookupError)      .table
      StorageError (OSError)                .uri
        ObjectNotFoundError (FileNotFoundError)  ObjectExistsError (FileExistsError)
      UnsupportedFeatureError (NotImplementedError)  .feature .needed_by
      ConflictError                         a concurrent commit won: .version .files .retryable
        LockedError                         another process has the lock: .owner .operation .expires
      PlanError                             a plan that would break an invariant
      VerificationError                     counts or hashes differ: .files .expected .found
      MissingDependencyError (ImportError)  .dependency
      EngineError                           a failure inside the JVM, short cause first: .retryable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol

from delvec.report.format import escape_controls, shortened

__all__ = [
    "ChecksumError",
    "ConflictError",
    "ConstraintError",
    "DelvecError",
    "EngineError",
    "FormatError",
    "InvalidArgumentError",
    "LockedError",
    "MagicError",
    "MissingDependencyError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "PlanError",
    "StorageError",
    "TableNotFoundError",
    "TruncatedError",
    "UnknownNameError",
    "UnsupportedFeatureError",
    "VerificationError",
]

_LONGEST: Final = 2000


class Report(Protocol):
    """What an operation did that commits in steps."""

    def brief(self) -> str:
        """Return what happened in one line."""

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""


class DelvecError(Exception):
    """Base of all errors that delvec raises on purpose.

    All arguments except the message are keywords with defaults, so that the standard pickling of
    exceptions (class, args, attributes) can rebuild any subclass.

    >>> print(DelvecError("the vector is gone", hint="run `delvec check`"))
    the vector is gone
    Hint: run `delvec check`

    `message` and the other attributes are as they were given; quote `describe()`. `report` is what
    an operation that commits in steps had committed before, which stays; None if there is nothing.
    """

    report: Report | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def describe(self) -> str:
        """Return what is wrong and where, in one sentence without the hint."""
        text = _shown(self._sentence())
        if self.report is None:
            return text
        return f"{text} (committed before: {_shown(self.report.brief())})"

    def _sentence(self) -> str:
        return self.message

    def __str__(self) -> str:
        text = self.describe()
        return f"{text}\nHint: {_shown(self.hint)}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Explicit, because OSError, a base of some subclasses, pickles in its own way.
        return type(self), (self.message,), self.__dict__.copy()


class FormatError(DelvecError, ValueError):
    """Bytes that violate their format.

    >>> print(FormatError("bad length", path="dv.bin", offset=1, expected=36, found=35))
    bad length in dv.bin at byte 1: expected 36, found 35
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found

    def _sentence(self) -> str:
        text = self.message
        if self.path is not None:
            text += f" in {self.path}"
        if self.offset is not None:
            text += f" at byte {self.offset}"
        told = {"expected": self.expected, "found": self.found}
        facts = [f"{name} {value}" for name, value in told.items() if value is not None]
        return f"{text}: {', '.join(facts)}" if facts else text


class ChecksumError(FormatError):
    """A checksum does not match its bytes: they were damaged after they were written."""


class MagicError(FormatError):
    """The magic number is not one of this format."""


class TruncatedError(FormatError):
    """There are fewer bytes than the format requires."""


class InvalidArgumentError(DelvecError, ValueError):
    """An argument that the called function cannot work with."""


class UnknownNameError(DelvecError, AttributeError):
    """A method or attribute that there is not; the hint names the one that was meant."""


class _TableError(DelvecError):
    """An error that names a table."""

    def __init__(self, message: str, *, table: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.table = table


class ConstraintError(_TableError, ValueError):
    """Rows violate a constraint of their table; none of them was written."""

    def __init__(
        self,
        message: str,
        *,
        constraint: str | None = None,
        table: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, table=table, hint=hint)
        self.constraint = constraint


class TableNotFoundError(_TableError, LookupError):
    """There is no table where one was asked for."""


class StorageError(DelvecError, OSError):
    """The disk or the object store refused a request or failed."""

    def __init__(self, message: str, *, uri: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.uri = uri


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """There is no object of that name."""


class ObjectExistsError(StorageError, FileExistsError):
    """An object of that name exists already, so a put-if-absent failed."""


class UnsupportedFeatureError(DelvecError, NotImplementedError):
    """A feature that delvec would handle wrongly, so it refuses."""

    def __init__(
        self,
        message: str,
        *,
        feature: str | None = None,
        needed_by: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.feature = feature
        self.needed_by = needed_by


class ConflictError(DelvecError):
    """A concurrent commit won, and this one conflicts with it; nothing was changed.

    `attempts` is the number of times that this commit was attempted. `retryable` tells whether the
    same call may succeed if it is made again. It is false if the call was given rows that were read
    from the table before the concurrent commit: these have to be read again first.
    """

    def __init__(
        self,
        message: str,
        *,
        version: int | None = None,
        files: Sequence[str] = (),
        retryable: bool = True,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.version = version
        self.files = tuple(files)
        self.retryable = retryable
        self.attempts = 0


class LockedError(ConflictError):
    """Somebody else has the lock of a table, or has taken it over; nothing was changed.

    `owner` and `operation` tell who has it and for what, `expires` until when if it is not renewed:
    a time in UTC, by the owner's clock. All are None if it was had and then lost.
    """

    def __init__(
        self,
        message: str,
        *,
        owner: str | None = None,
        operation: str | None = None,
        expires: datetime | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner
        self.operation = operation
        self.expires = expires


class PlanError(DelvecError):
    """A plan that would break an invariant of the table if it were applied."""


class VerificationError(DelvecError):
    """Source and target do not hold the same rows."""

    def __init__(
        self,
        message: str,
        *,
        files: Sequence[str] = (),
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.files = tuple(files)
        self.expected = expected
        self.found = found


class MissingDependencyError(DelvecError, ImportError):
    """A package or jar that this call needs is missing."""

    def __init__(
        self, message: str, *, dependency: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.dependency = dependency


class EngineError(DelvecError):
    """A failure inside the JVM: the short cause first, the full error in `__cause__`.

    `output` is what a JVM printed that did not start. `retryable` tells whether the same call may
    succeed if it is made again: rows were lost with an executor, and nothing was changed.
    """

    def __init__(
        self, message: str, *, output: str = "", retryable: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.output = output
        self.retryable = retryable

    def describe(self) -> str:
        """Return what is wrong, and then the output, line by line."""
        lines = (_shown(line.expandtabs()) for line in self.output.splitlines())
        return "\n".join([super().describe(), *lines])


def _shown(text: str) -> str:
    r"""Return text on one line, without control characters, and a long one without its middle.

    >>> print(_shown("a\x1b[31m\n" + "b" * 3000)[:20])
    a\x1b[31m\nbbbbbbbbb
    """
    return shortened(escape_controls(shortened(text, _LONGEST)), _LONGEST)


def require_bytes(found: int, least: int, message: str, *, offset: int = 0) -> None:
    """Refuse bytes that are fewer than their format needs at least."""
    if found < least:
        raise TruncatedError(
            message, offset=offset, expected=f"at least {least} bytes", found=f"{found} bytes"
        )


def require_equal(message: str, expected: object, found: object, offset: int | None = None) -> None:
    """Refuse bytes that say something else than they should."""
    if found != expected:
        raise FormatError(message, offset=offset, expected=expected, found=found)


@contextmanager
def committed_before(report: Callable[[], Report | None]) -> Iterator[None]:
    """Add the report so far to an error in the block; it is None if nothing was committed."""
    try:
        yield
    except DelvecError as error:
        if error.report is None:
            error.report = report()
        raise


@contextmanager
def add_location(path: str | None = None, offset: int = 0) -> Iterator[None]:
    """Add the location of the bytes to a `FormatError` raised in the block.

    Decoders know offsets inside their own bytes only. Each caller that passes a part of its bytes
    adds the offset of the part; the one that knows the file adds its path.
    """
    try:
        yield
    except FormatError as error:
        if error.path is None:
            error.path = path
            error.offset = offset + (error.offset or 0)
        raise
