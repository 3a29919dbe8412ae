"""What a user asked a MERGE to do, and how the table's history tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from delvec.errors import InvalidArgumentError
from delvec.spark.delta.scan.conditions import text_of
from delvec.spark.delta.write.file_outcomes import require_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from delvec.spark.delta.write.clauses import Clause, When

__all__ = ["SOURCE_ROW", "MergeRequest", "count_name", "merge_metrics", "numbered"]

SOURCE_ROW: Final = "__delvec_source_row"
"""The column that numbers the rows of a source."""


@dataclass(frozen=True)
class MergeRequest:
    """What a user asked for.

    Attributes:
        source: The rows to merge, each with its number in `SOURCE_ROW`; the same for every job.
        on: When a row of the target and one of the source are partners.
        aliases: What conditions and values call the target and the source.
        clauses: What to do, in order.
        merge_schema: Whether columns that only the source has become columns of the table.
        rewrite_ratio: Rewrite a file when this share of its rows is gone.
    """

    source: DataFrame
    on: str | Column
    aliases: tuple[str, str]
    clauses: tuple[Clause, ...]
    merge_schema: bool = False
    rewrite_ratio: float | None = None

    def of(self, when: When) -> list[Clause]:
        """Give the clauses for one kind of rows."""
        return [clause for clause in self.clauses if clause.when == when]

    def require_valid(self) -> None:
        """Refuse clauses that could never apply.

        Raises:
            InvalidArgumentError: There is no clause, or one stands behind another that takes all.
        """
        require_ratio(self.rewrite_ratio)
        if not self.clauses:
            raise InvalidArgumentError(
                "a merge needs at least one clause",
                hint="add .when_matched_update_all() or .when_not_matched_insert_all()",
            )
        for when in ("matched", "not_matched", "not_matched_by_source"):
            if any(clause.condition is None for clause in self.of(when)[:-1]):
                raise InvalidArgumentError(
                    f"a clause for rows that are {when.replace('_', ' ')} stands behind one without"
                    " a condition, and would never apply",
                    hint="only the last clause of each kind may go without a condition",
                )

    def parameters(self) -> dict[str, Any]:
        """Give what the history shows."""

        def shown(when: When) -> list[dict[str, str]]:
            return [
                {"actionType": clause.action}
                | ({} if clause.condition is None else {"predicate": text_of(clause.condition)})
                for clause in self.of(when)
            ]

        return {
            "predicate": [text_of(self.on)],
            "matchedPredicates": shown("matched"),
            "notMatchedPredicates": shown("not_matched"),
            "notMatchedBySourcePredicates": shown("not_matched_by_source"),
        }


def numbered(source: DataFrame) -> DataFrame:
    """Number the rows of a source, so that those without a partner can be told."""
    return source.withColumn(SOURCE_ROW, functions.monotonically_increasing_id())


def count_name(when: str, action: str) -> str:
    """Name the count of rows of one kind."""
    return f"{when}_{action}"


def merge_metrics(counts: Mapping[str, int], source_rows: int, copied: int) -> dict[str, int]:
    """Give the counts of a merge by Delta's names."""
    return {
        "numSourceRows": source_rows,
        "numTargetRowsInserted": counts["rows_inserted"],
        "numTargetRowsUpdated": counts["rows_updated"],
        "numTargetRowsDeleted": counts["rows_deleted"],
        "numTargetRowsMatchedUpdated": counts["matched_update"],
        "numTargetRowsMatchedDeleted": counts["matched_delete"],
        "numTargetRowsNotMatchedBySourceUpdated": counts["not_matched_by_source_update"],
        "numTargetRowsNotMatchedBySourceDeleted": counts["not_matched_by_source_delete"],
        "numTargetRowsCopied": copied,
        "numOutputRows": counts["rows_inserted"] + counts["rows_updated"] + copied,
    }
