"""Every error that delvec raises on purpose.

One base class, `DelvecError`; each error also is the builtin that fits (`ValueError`, `OSError`,
...), so that code which knows nothing of delvec catches it rightly. Errors carry their facts as
attributes, print them in one sentence, end in a `Hint:` where there is a next step, and survive
pickling, because they cross from Spark workers to the driver.

    DelvecError
      FormatError (ValueError)              bytes are wrong: .path .offset .expected .found
        ChecksumError  MagicError  TruncatedError
      InvalidArgumentError (ValueError)     the caller's argument is wrong
      ConstraintError (ValueError)          rows break a rule of their table: .constraint .table
      TableNotFoundError (LookupError)      .table
      StorageError (OSError)                .uri
        ObjectNotFoundError (FileNotFoundError)  ObjectExistsError (FileExistsError)
      UnsupportedFeatureError (NotImplementedError)  .feature .needed_by
      ConflictError                         a concurrent commit won: .version .files
      PlanError                             a plan that would break an invariant
      VerificationError                     counts or hashes differ: .files .expected .found
      MissingDependencyError (ImportError)  .dependency
      EngineError                           a failure inside the JVM, short cause first
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ChecksumError",
    "ConflictError",
    "ConstraintError",
    "DelvecError",
    "EngineError",
    "FormatError",
    "InvalidArgumentError",
    "MagicError",
    "MissingDependencyError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "PlanError",
    "StorageError",
    "TableNotFoundError",
    "TruncatedError",
    "UnsupportedFeatureError",
    "VerificationError",
]


class DelvecError(Exception):
    """Base of all errors that delvec raises on purpose.

    Every argument but the message is a keyword with a default: that is what lets the standard
    pickling of exceptions (class, args, attributes) rebuild any subclass.

    >>> print(DelvecError("the vector is gone", hint="run `delvec check`"))
    the vector is gone
    Hint: run `delvec check`
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def describe(self) -> str:
        """Tell what is wrong and where, in one sentence without the hint."""
        return self.message

    def __str__(self) -> str:
        text = self.describe()
        return f"{text}\nHint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Spelled out because OSError, a base of some subclasses, pickles in its own way.
        return type(self), (self.message,), self.__dict__.copy()


class FormatError(DelvecError, ValueError):
    """Bytes that do not say what their format demands.

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

    def describe(self) -> str:
        """Tell what is wrong, where, what was expected and what was found."""
        text = self.message
        if self.path is not None:
            text += f" in {self.path}"
        if self.offset is not None:
            text += f" at byte {self.offset}"
        facts = []
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        if self.found is not None:
            facts.append(f"found {self.found}")
        return f"{text}: {', '.join(facts)}" if facts else text


class ChecksumError(FormatError):
    """A checksum does not match its bytes: they were damaged after they were written."""


class MagicError(FormatError):
    """The magic number is not one that this format has."""


class TruncatedError(FormatError):
    """There are fewer bytes than the format says there must be."""


class InvalidArgumentError(DelvecError, ValueError):
    """An argument that the called function cannot work with."""


class ConstraintError(DelvecError, ValueError):
    """Rows that break a rule which their table has for them; none of them was written."""

    def __init__(
        self,
        message: str,
        *,
        constraint: str | None = None,
        table: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.constraint = constraint
        self.table = table


class TableNotFoundError(DelvecError, LookupError):
    """There is no table where one was asked for."""

    def __init__(self, message: str, *, table: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.table = table


class StorageError(DelvecError, OSError):
    """The disk or the object store refused or failed."""

    def __init__(self, message: str, *, uri: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.uri = uri


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """There is no object of that name."""


class ObjectExistsError(StorageError, FileExistsError):
    """An object of that name exists already: a put-if-absent lost."""


class UnsupportedFeatureError(DelvecError, NotImplementedError):
    """Something that delvec would get wrong, so that it refuses to try."""

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
    """Another commit got there first and the two cannot both stand. Safe to retry.

    `attempts` says how often this change was tried to be put until then.
    """

    def __init__(
        self,
        message: str,
        *,
        version: int | None = None,
        files: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.version = version
        self.files = tuple(files)
        self.attempts = 0


class PlanError(DelvecError):
    """A plan that would break an invariant of the table if it were applied."""


class VerificationError(DelvecError):
    """Two sides that must hold the same rows do not."""

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
    """A package or jar that this call needs is not there."""

    def __init__(
        self, message: str, *, dependency: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.dependency = dependency


class EngineError(DelvecError):
    """A failure inside the JVM: the short cause first, the whole story in `__cause__`."""


@contextmanager
def located(path: str | None = None, offset: int = 0) -> Iterator[None]:
    """Add where the bytes came from to a `FormatError` that passes through.

    Decoders know offsets inside their own bytes only. Each caller that handed over a part adds
    where the part began, up to the one that knows the file and puts its path.
    """
    try:
        yield
    except FormatError as error:
        if error.path is None:
            error.path = path
            error.offset = offset + (error.offset or 0)
        raise
