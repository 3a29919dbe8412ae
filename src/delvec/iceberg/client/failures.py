"""Exceptions of Iceberg's library as errors of delvec, in one place."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    PlanError,
    StorageError,
    TableNotFoundError,
)
from delvec.spark.failures import explained as explained_by_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CommitStateUnknownError", "explained", "is_commit_state_unknown"]

# PySpark converts some Java exceptions to its own, so the class is looked for in the message.
_EXCEPTION: Final = re.compile(
    r"org\.apache\.iceberg\.(?:[a-z]+\.)*([A-Z]\w*Exception): (.*?)\s*$", re.MULTILINE
)
_AGAIN: Final = "somebody else changed the table meanwhile: run it again"


class CommitStateUnknownError(EngineError):
    """The catalog did not answer whether a commit happened; only the table can tell."""


@contextmanager
def explained(table: str) -> Iterator[None]:
    """Convert exceptions of Iceberg in the block to errors of delvec; other errors pass unchanged.

    Args:
        table: The table that is read or written, named in errors.

    Raises:
        TableNotFoundError: There is no such table, namespace or catalog.
        ConflictError: Another commit got there first.
        PlanError: Iceberg's validation rejected the change.
        CommitStateUnknownError: A commit may have happened or not.
        StorageError: A file is missing, or access to it is denied.
        EngineError: Any other failure.
    """
    try:
        with explained_by_spark(table):
            yield
    except DelvecError as error:
        if not isinstance(error.__cause__, (Py4JError, PySparkException)):
            raise
        converted = _converted(str(error.__cause__), table)
        if converted is None:
            raise
        raise converted from error.__cause__


def is_commit_state_unknown(error: Exception) -> bool:
    """Tell whether a commit failed in a way that leaves open whether it happened."""
    return isinstance(error, CommitStateUnknownError) or "CommitStateUnknownException" in str(error)


def _converted(trace: str, table: str) -> DelvecError | None:
    """Return the error for the exception in a stack trace; None if it is not one of Iceberg's."""
    for kind, message in _EXCEPTION.findall(trace):
        if kind in _ERRORS:
            return _ERRORS[kind](f"{message} (table {table})", table)
    return None


def _unknown(message: str, _table: str) -> DelvecError:
    return CommitStateUnknownError(
        message, hint="look at the table's newest snapshot before you run it again"
    )


def _no_table(message: str, table: str) -> DelvecError:
    return TableNotFoundError(message, table=table)


def _no_namespace(message: str, table: str) -> DelvecError:
    namespace = table.rpartition(".")[0]
    return TableNotFoundError(
        message, table=table, hint=f"make it first: CREATE NAMESPACE {namespace}"
    )


def _conflict(message: str, _table: str) -> DelvecError:
    return ConflictError(message, hint=_AGAIN)


def _invalid(message: str, _table: str) -> DelvecError:
    return PlanError(message, hint=_AGAIN)


def _unreachable(message: str, table: str) -> DelvecError:
    return StorageError(message, uri=table, hint="is the file there, and may you read it?")


_ERRORS: Final = {
    "CommitStateUnknownException": _unknown,
    "NoSuchTableException": _no_table,
    "NoSuchIcebergTableException": _no_table,
    "NoSuchNamespaceException": _no_namespace,
    "CommitFailedException": _conflict,
    "AlreadyExistsException": _conflict,
    "ValidationException": _invalid,
    "NotFoundException": _unreachable,
    "ForbiddenException": _unreachable,
    "NotAuthorizedException": _unreachable,
}
