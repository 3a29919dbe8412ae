"""The engine of an operation, which reads and writes rows: Spark, or none for metadata."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "NoEngine"]


class Engine(Protocol):
    """What an operation needs of the engine that it runs on."""

    def session(self, operation: str) -> SparkSession:
        """Return the session that reads and writes rows.

        Raises:
            InvalidArgumentError: There is none.
        """

    def explained(self, table: str) -> AbstractContextManager[None]:
        """Raise failures of the engine in the block as errors of delvec that name the table."""

    def described(self, what: str) -> AbstractContextManager[None]:
        """Describe the jobs of the block in the engine's user interface."""


@dataclass(frozen=True)
class NoEngine:
    """No engine: enough for operations that commit metadata only."""

    def session(self, operation: str) -> SparkSession:
        """Raise: only Spark reads and writes rows."""
        raise InvalidArgumentError(
            f"{operation} needs a Spark session, and this table was opened without one",
            hint="pass a session to for_path",
        )

    def explained(self, table: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: no engine can fail."""
        return nullcontext()

    def described(self, what: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: there are no jobs."""
        return nullcontext()
