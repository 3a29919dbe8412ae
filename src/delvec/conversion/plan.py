"""The plan of a conversion: the action for each file, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec.conversion.apply import ConversionReport, apply_steps, lost_properties
from delvec.conversion.planning.options import ConversionOptions, Verify
from delvec.conversion.planning.planner import Planned
from delvec.conversion.planning.step import ACTIONS, PLAN_SCHEMA
from delvec.conversion.planning.target import Target
from delvec.delta.log.snapshot import Snapshot
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.catalog import LoadedTable, TableName
from delvec.iceberg.commit.publish import set_properties
from delvec.report.format import format_count, format_size
from delvec.report.rendering import Line, Rendered, doc, documented, required, summary
from delvec.spark.jobs import interruptible
from delvec.storage.backend import RequestCounts

_MEANINGS: Final = {
    "add": "new in the target",
    "remove": "no longer part of the target",
    "keep": "there already",
    "vector-add": "rows deleted from a file that had all",
    "vector-replace": "more or other rows deleted",
    "vector-drop": "no row deleted any more",
}


@documented(eq=False)
class ConversionPlan(Rendered):
    """What brings an Iceberg table to a version of a Delta table.

    Prints as a short summary, also on terminals and in notebooks; `to_df` has a row for each file.
    """

    spark: SparkSession = required("The session.")
    snapshot: Snapshot = required("The version of the source.")
    name: TableName = required("The target.")
    table: LoadedTable | None = required("The target before the plan; None if it did not exist.")
    options: ConversionOptions = required("What was asked for.")
    format_version: int = required("Iceberg's format of the target.")
    planned: Planned = required("The steps.")
    seconds: float = doc("The time to make the plan.", 0.0)
    requests: RequestCounts = doc("Requests to the source for it.", RequestCounts)

    @property
    def version(self) -> int:
        """The version of the source that the target will hold."""
        return self.snapshot.version

    @property
    def start_version(self) -> int | None:
        """The version that the target holds now; None if it holds none."""
        return self.planned.start_version

    @property
    def mode(self) -> str:
        """`full`, `incremental`, or `none` if there is nothing to do."""
        return self.planned.mode

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know before they apply it, in sentences."""
        notes = list(self.planned.notes)
        if self._lost_properties:
            names = ", ".join(self._lost_properties)
            notes.append(f"properties of {self.name} were changed or removed, set again: {names}")
        if self.options.vectors == "reference" and self.format_version > 2:
            notes.append(
                "vectors are referred to where Delta has them: VACUUM of the source removes those"
                " that older snapshots of the target need, and readers that open Puffin footers"
                " (PyIceberg 0.12) cannot read the target"
            )
        return tuple(notes)

    def counts(self) -> dict[str, int]:
        """Return the number of files with each action, in all steps."""
        found = [step.difference for step in self.planned.steps]
        return {action: sum(each.count(action) for each in found) for action in ACTIONS}

    def to_arrow(self) -> pa.Table:
        """Return a row for each file of each step: action, vectors, rows, bytes."""
        tables = [step.to_arrow() for step in self.planned.steps]
        return pa.concat_tables(tables) if tables else PLAN_SCHEMA.empty_table()

    def to_df(self) -> DataFrame:
        """Return a row for each file of each step, as a DataFrame."""
        return self.spark.createDataFrame(self.to_arrow())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON document, without the single files."""
        return {
            "source": self.snapshot.table,
            "target": str(self.name),
            "start_version": self.start_version,
            "version": self.version,
            "mode": self.mode,
            "format_version": self.format_version,
            "steps": len(self.planned.steps),
            "actions": self.counts(),
            "notes": list(self.notes),
        }

    def apply(self, verify: Verify | bool = "counts") -> ConversionReport:  # noqa: FBT001
        """Commit the plan. Readers of the target see nothing of it before it is verified.

        Args:
            verify: `counts` compares rows and deleted rows of each file by the target's metadata,
                `rows` all rows as well, by an order-free hash (one scan of each side), `none`
                nothing; True is `counts` and False is `none`.

        Raises:
            ConflictError: Somebody else committed to the target since the plan was made.
            VerificationError: The target would not have been equal to the source; it is unchanged.
                The error names the files.
            FormatError: A vector is damaged; the error names its file.
        """
        if verify not in (True, False, "counts", "rows", "none"):
            raise InvalidArgumentError(f"verify is 'counts', 'rows' or 'none', got {verify!r}")
        chosen: Verify = "none"
        if verify:
            chosen = "counts" if verify is True else verify
        report = self._report()
        if self.planned.steps:
            with interruptible(self.spark):
                return apply_steps(
                    self.planned, self.snapshot, self._target, self.options, chosen, report
                )
        if self.table is None:
            return report
        if self._lost_properties:
            set_properties(self.table, self._lost_properties)
        head = self.table.metadata.head()
        if head is None:
            return report
        return replace(report, rows=head.live_rows, deleted_rows=head.deleted_rows)

    @property
    def _target(self) -> Target:
        return Target(self.spark, self.name, self.table, self.format_version)

    @cached_property
    def _lost_properties(self) -> dict[str, str]:
        return lost_properties(self.planned, self.snapshot, self._target)

    def _report(self) -> ConversionReport:
        """Return what is known before anything is written."""
        steps, counts = self.planned.steps, self.counts()
        fresh = sum(int(step.files.has_vector[step.difference.added].sum()) for step in steps)
        return ConversionReport(
            source=self.snapshot.table,
            target=str(self.name),
            start_version=self.start_version,
            version=self.version,
            mode=self.mode,
            format_version=self.format_version,
            vectors="position-deletes" if self.format_version == 2 else self.options.vectors,
            versions=len(steps),
            files_added=counts["add"],
            files_removed=counts["remove"],
            files_kept=counts["keep"],
            vectors_added=counts["vector-add"] + fresh,
            vectors_replaced=counts["vector-replace"],
            vectors_dropped=counts["vector-drop"],
            properties_set=tuple(self._lost_properties),
            requests=self.requests,
            phases={"plan": self.seconds},
            notes=self.notes,
        )

    def _lines(self) -> Iterator[Line]:
        figures = {action: f"{count:,}" for action, count in self.counts().items() if count}
        width = max(map(len, figures.values()), default=0)
        return summary(
            self._headline(),
            {name: f"{text:>{width}}  {_MEANINGS[name]}" for name, text in figures.items()},
            details=(self._vectors(),) if figures else (),
            notes=self.notes,
        )

    def _headline(self) -> str:
        where = f"{self.snapshot.table} -> {self.name}"
        if not self.planned.steps:
            return f"{where}: version {self.version:,} is there already"
        start = "nothing" if self.start_version is None else f"version {self.start_version:,}"
        steps = f", {format_count(len(self.planned.steps), 'snapshot')}" * (
            len(self.planned.steps) > 1
        )
        return (
            f"{where}: from {start} to version {self.version:,}"
            f" ({self.mode}, format {self.format_version}{steps})"
        )

    def _vectors(self) -> str:
        steps = self.planned.steps
        count = sum(len(step.vector_rows) for step in steps)
        deleted = sum(int(step.deleted[step.vector_rows].sum()) for step in steps)
        vector_bytes = sum(int(step.vector_sizes[step.vector_rows].sum()) for step in steps)
        copied = sum(int(step.copied[step.difference.added].sum()) for step in steps)
        files = (
            f"{format_count(copied, 'data file')} copied, the others" if copied else "data files"
        )
        vectors = f"{format_count(count, 'vector')} of {format_size(vector_bytes)}"
        return f"{vectors} mark {format_count(deleted, 'row')}; {files} shared"
