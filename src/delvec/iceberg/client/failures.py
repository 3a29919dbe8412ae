"""Failures of Iceberg's library as errors of delvec, in one place."""

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

__all__ = ["CommitStateUnknownError", "explained"]

# PySpark turns some exceptions of Java into its own, so the class is looked for in the text.
_NAMED: Final = re.compile(
    r"org\.apache\.iceberg\.(?:[a-z]+\.)*([A-Z]\w*Exception): (.*?)\s*$", re.MULTILINE
)
_AGAIN: Final = "somebody else changed the table meanwhile: run it again"


class CommitStateUnknownError(EngineError):
    """The catalog did not say whether a commit happened; the table has to be looked at."""


@contextmanager
def explained(table: str) -> Iterator[None]:
    """Turn failures of Iceberg inside the block into errors of delvec; these pass as they are.

    Args:
        table: The table that is read or written, for the errors to name.

    Raises:
        TableNotFoundError: There is no such table, namespace or catalog.
        ConflictError: Another commit got there first.
        PlanError: Iceberg's own validation found that the change does not fit the table.
        CommitStateUnknownError: A commit may have happened or not.
        StorageError: A file is missing, or may not be read or written.
        EngineError: All else.
    """
    try:
        with explained_by_spark(table):
            yield
    except DelvecError as error:
        if not isinstance(error.__cause__, (Py4JError, PySparkException)):
            raise
        told = _told(str(error.__cause__), table)
        if told is None:
            raise
        raise told from error.__cause__


def _told(text: str, table: str) -> DelvecError | None:
    """Say what a failure of Iceberg means; None if it is none that needs a word of its own."""
    for kind, message in _NAMED.findall(text):
        if kind in _MEANINGS:
            return _MEANINGS[kind](f"{message} (table {table})", table)
    return None


def _unknown(words: str, _table: str) -> DelvecError:
    return CommitStateUnknownError(
        words, hint="look at the table's newest snapshot before you run it again"
    )


def _no_table(words: str, table: str) -> DelvecError:
    return TableNotFoundError(words, table=table)


def _no_namespace(words: str, table: str) -> DelvecError:
    namespace = table.rpartition(".")[0]
    return TableNotFoundError(
        words, table=table, hint=f"make it first: CREATE NAMESPACE {namespace}"
    )


def _second(words: str, _table: str) -> DelvecError:
    return ConflictError(words, hint=_AGAIN)


def _invalid(words: str, _table: str) -> DelvecError:
    return PlanError(words, hint=_AGAIN)


def _unreachable(words: str, table: str) -> DelvecError:
    return StorageError(words, uri=table, hint="is the file there, and may you read it?")


_MEANINGS: Final = {
    "CommitStateUnknownException": _unknown,
    "NoSuchTableException": _no_table,
    "NoSuchIcebergTableException": _no_table,
    "NoSuchNamespaceException": _no_namespace,
    "CommitFailedException": _second,
    "AlreadyExistsException": _second,
    "ValidationException": _invalid,
    "NotFoundException": _unreachable,
    "ForbiddenException": _unreachable,
    "NotAuthorizedException": _unreachable,
}
