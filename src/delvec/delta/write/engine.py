"""What does the row work of an operation: Spark, or nothing where no row is touched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "NoEngine"]


class Engine(Protocol):
    """What an operation asks of the engine that it runs on."""

    def session(self, operation: str) -> SparkSession:
        """Return the session that reads and writes rows.

        Raises:
            InvalidArgumentError: There is none.
        """

    def explained(self, table: str) -> AbstractContextManager[None]:
        """Turn the engine's failures inside the block into errors of delvec that name the table."""

    def described(self, what: str) -> AbstractContextManager[None]:
        """Name the work of the block in the engine's own pages."""


@dataclass(frozen=True)
class NoEngine:
    """No session: enough for operations that commit metadata only."""

    def session(self, operation: str) -> SparkSession:
        """Refuse: rows are read and written by Spark alone."""
        raise InvalidArgumentError(
            f"{operation} needs a Spark session, and this table was opened without one",
            hint="pass a session to for_path",
        )

    def explained(self, table: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: there is no engine that could fail."""
        return nullcontext()

    def described(self, what: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: there are no jobs."""
        return nullcontext()
