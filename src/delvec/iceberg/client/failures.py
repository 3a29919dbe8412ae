"""Exceptions of Iceberg's library as errors of delvec, in one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec import errors
from delvec.spark.failures import translate_errors as translate_spark_errors

# PySpark converts some Java exceptions to its own, so the class is looked for in the message.
_EXCEPTION: Final = re.compile(
    r"org\.apache\.iceberg\.(?:[a-z]+\.)*([A-Z]\w*Exception): (.*?)\s*$", re.MULTILINE
)
_AGAIN: Final = "somebody else changed the table meanwhile: run it again"


class CommitStateUnknownError(errors.EngineError):
    """The catalog did not answer whether a commit happened; only the table can tell."""


@contextmanager
def translate_errors(table: str) -> Iterator[None]:
    """Convert exceptions of Iceberg in the block to errors of delvec; others pass unchanged."""
    try:
        with translate_spark_errors(table):
            yield
    except errors.DelvecError as error:
        if not isinstance(error.__cause__, (Py4JError, PySparkException)):
            raise
        converted = _converted(str(error.__cause__), table)
        if converted is None:
            raise
        raise converted from error.__cause__


def is_commit_state_unknown(error: Exception) -> bool:
    """Tell whether a commit failed in a way that leaves open whether it happened."""
    return isinstance(error, CommitStateUnknownError) or "CommitStateUnknownException" in str(error)


def _converted(trace: str, table: str) -> errors.DelvecError | None:
    """Return the error for the exception in a stack trace; None if it is not one of Iceberg's."""
    look = "look at the table's newest snapshot before you run it again"
    make = f"make it first: CREATE NAMESPACE {table.rpartition('.')[0]}"
    missing = partial(errors.TableNotFoundError, table=table)
    conflict = partial(errors.ConflictError, hint=_AGAIN)
    unreachable = partial(
        errors.StorageError, uri=table, hint="is the file there, and may you read it?"
    )
    known: dict[str, Callable[[str], errors.DelvecError]] = {
        "CommitStateUnknownException": partial(CommitStateUnknownError, hint=look),
        "NoSuchTableException": missing,
        "NoSuchIcebergTableException": missing,
        "NoSuchNamespaceException": partial(missing, hint=make),
        "CommitFailedException": conflict,
        "AlreadyExistsException": conflict,
        "ValidationException": partial(errors.PlanError, hint=_AGAIN),
        "NotFoundException": unreachable,
        "ForbiddenException": unreachable,
        "NotAuthorizedException": unreachable,
    }
    for kind, message in _EXCEPTION.findall(trace):
        if kind in known:
            return known[kind](f"{message} (table {table})")
    return None
