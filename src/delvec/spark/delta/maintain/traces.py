"""Matching rows in files of any version of a table, by a condition that Spark evaluates.

One job reads the columns of the condition in all files; the driver gets at most 24 bytes for each
64 rows of a file in which one matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import resolve
from delvec.delta.skipping.predicate import columns_of
from delvec.delta.traces.files import plain_files
from delvec.delta.traces.rows import Reading
from delvec.delta.traces.values import Redaction
from delvec.errors import InvalidArgumentError
from delvec.spark.delta.scan.conditions import aliased, no_rows, to_predicate, to_sql
from delvec.spark.delta.scan.scan import PLACE, scan
from delvec.spark.failures import translate_errors
from delvec.spark.jobs import describe_jobs
from delvec.spark.jvm import class_name, in_copied_session, items
from delvec.spark.positions import NUMBER, POSITION, find_rows
from delvec.vector import Bitmap

_LENIENT: Final = {"spark.sql.ansi.enabled": "false"}


@dataclass(frozen=True)
class SqlCondition:
    """A condition in SQL, or a column of Spark."""

    spark: SparkSession
    where: str | Column
    table: str
    window: int = 200_000
    checks_first: bool = True

    @property
    def text(self) -> str:
        """The condition as the table's history would show it."""
        return to_sql(self.where)

    def redacted(self, redaction: Redaction) -> str:
        """Return SQL with digests for its literals; a digest alone for a column of Spark."""
        if isinstance(self.where, str):
            return redaction.sql(self.where)
        return redaction.digest(self.text)

    def reading(self, metadata: Metadata) -> Reading:
        """Resolve the condition by the columns of a definition of the table; runs no job."""
        schema = metadata.schema
        with translate_errors(self.table):
            names = self._references(metadata)
            predicate = to_predicate(self.spark, schema, self.where)
        nested = columns_of(predicate)
        paths = sorted({*nested, *((name,) for name in names)})
        return Reading(metadata, predicate, tuple(resolve(schema, path) for path in paths))

    def _references(self, metadata: Metadata) -> list[str]:
        condition = functions.expr(self.where) if isinstance(self.where, str) else self.where
        rows = no_rows(self.spark, metadata.schema).where(condition)
        plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
        known = set(metadata.schema.names)
        if class_name(plan) != "Filter":
            return sorted(known)
        _evaluate_casts(plan.condition())
        found = {each.name() for each in items(plan.condition().references().toSeq())}
        return sorted(found & known)

    def search(
        self, snapshot: Snapshot, reading: Reading, files: Sequence[DataFile]
    ) -> Iterator[tuple[int, Bitmap | str]]:
        """Find the matching rows of all files by one job."""
        as_of = replace(snapshot, metadata=reading.metadata)
        chosen = plain_files(reading.metadata, snapshot.table, files)
        with (
            translate_errors(snapshot.table),
            describe_jobs(self.spark, f"searching {snapshot.table}"),
        ):
            rows = scan(self.spark, as_of, None, chosen, added=PLACE)
        try:
            found = self._matching(rows, reading)
        except InvalidArgumentError:
            if reading.metadata == snapshot.metadata:
                raise
            # The condition is one on the columns of today: former values need not be of their type.
            found = self._matching(in_copied_session(self.spark, rows, _LENIENT), reading)
        yield from found.items()

    def _matching(self, rows: DataFrame, reading: Reading) -> Mapping[int, Bitmap]:
        with translate_errors(self.table), describe_jobs(self.spark, f"searching {self.table}"):
            named = aliased(rows, reading.metadata.schema)
            return find_rows(named.where(self.where).select(NUMBER, POSITION)).bitmaps


def _evaluate_casts(expression: Any) -> None:  # noqa: ANN401
    """Fail for a literal that the type of its column cannot hold, as each row would."""
    if class_name(expression) == "Cast" and expression.foldable():
        expression.eval(None)
        return
    for child in items(expression.children()):
        _evaluate_casts(child)
