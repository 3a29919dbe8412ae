"""What a query over Delta tables reads: pruned files, vectors, and the form they take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from pyspark.sql import DataFrame

from delvec.calls import describe_value
from delvec.errors import InvalidArgumentError
from delvec.report.format import format_size
from delvec.report.rendering import Line, Rendered, doc, documented, required
from delvec.spark import jvm
from delvec.spark.delta.scan.file_index import Listing, find_index
from delvec.spark.jvm import items

_FORMS: Final = {
    "vector": "the reader marks deleted rows; the vector is a constant of its file",
    "number": "each row's bit is tested in generated code; the vectors come by a broadcast join",
    "tasks": "Python tasks read these files and their vectors, since all vectors together may"
    " take more than spark.delvec.scan.vectorMemory, or those of one task more than 64 MiB",
    "clean": "read as plain Parquet, rows are not tested",
}


@documented()
class ReadPart(Rendered):
    """One scan of a query: the files of a table with vectors, or those without."""

    table: str = required("The table.")
    version: int | None = required("Its version; None if the data source reads it.")
    form: str = required("How vectors reach rows: `vector`, `number`, `tasks`; `clean` without.")
    listing: Listing | None = required("The files that are read; None if tasks list them.")
    why: str = doc("Why vectors come by a join; empty if they do not.", "")

    @property
    def title(self) -> str:
        return self.table if self.version is None else f"{self.table}, version {self.version}"

    def _lines(self) -> Iterator[Line]:
        kind = "without vectors" if self.form == "clean" else "with vectors"
        found = self.listing
        if found is None:
            yield f"files {kind}: {_FORMS[self.form]}", ""
            return
        read = f"{format_size(found.bytes_read)} of {format_size(found.bytes_total)}"
        yield f"files {kind}: {found.read:,} of {found.total:,} are read, {read}", ""
        if found.by_partition or found.by_statistics:
            reasons = f"{found.by_partition:,} by partition values, {found.by_statistics:,} by"
            yield f"  pruned: {reasons} statistics", ""
        if found.vectors:
            yield f"  vectors: {found.vectors:,}, {format_size(found.vector_bytes)} as bits", ""
        if found.read:
            why = f", since {self.why}" if self.why else ""
            yield f"  {_FORMS[self.form]}{why}", "dim"


@documented()
class ReadReport(Rendered):
    """What a query reads; prints as text, and renders on terminals and in notebooks."""

    parts: tuple[ReadPart, ...] = required("The scans, in the order of the query's plan.")

    def _lines(self) -> Iterator[Line]:
        for title, parts in groupby(self.parts, key=lambda part: part.title):
            yield title, "bold"
            for part in parts:
                for line, style in part._lines():  # noqa: SLF001
                    yield f"  {line}", style


def explain(df: DataFrame) -> ReadReport:
    """Return what a query reads of the Delta tables in it, those of `DeltaTable.to_df`.

    The query is planned, and the vectors of the files that it reads are loaded, as when it runs;
    no row is read.

        print(delvec.explain(table.to_df().where("day = '2026-01-31'")))

    Raises:
        InvalidArgumentError: The query reads no Delta table through delvec.
    """
    if not isinstance(df, DataFrame):
        raise InvalidArgumentError(
            f"explain() takes a Spark DataFrame, not {describe_value(df)}",
            hint="call explain(table.to_df().where(...))",
        )
    jvm.view_of(df.sparkSession)
    plan = df._jdf.queryExecution().executedPlan()  # noqa: SLF001
    parts = tuple(part for leaf in _leaves(plan) for part in _parts(leaf))
    if not parts:
        raise InvalidArgumentError(
            "the query reads no Delta table through delvec",
            hint="begin with DeltaTable.for_path(spark, path).to_df()",
        )
    return ReadReport(parts)


def _leaves(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield all scans of a plan, those inside adaptive stages and subqueries too."""
    kind = jvm.class_name(plan)
    inner = {"AdaptiveSparkPlanExec": "inputPlan", "ReusedExchangeExec": "child"}.get(kind)
    if kind.endswith("QueryStageExec"):
        inner = "plan"
    if inner is not None:
        yield from _leaves(getattr(plan, inner)())
        return
    children = list(items(plan.children()))
    if not children:
        yield plan
    for child in children:
        yield from _leaves(child)
    for query in items(plan.subqueries()):
        yield from _leaves(query)


def _parts(leaf: Any) -> Iterator[ReadPart]:  # noqa: ANN401
    kind = jvm.class_name(leaf)
    if kind == "BatchScanExec" and leaf.table().name() == "delvec":
        yield ReadPart("delvec data source", None, "tasks", None)
    if kind != "FileSourceScanExec":
        return
    index = find_index(leaf.relation().location().toString())
    if index is not None:
        leaf.selectedPartitions()  # makes Spark ask the index for its files
        forms = [name for name in index.hidden if name in ("vector", "number")]
        form = forms[0] if forms else "clean"
        table, version = index.snapshot.table, index.snapshot.version
        yield ReadPart(table, version, form, index.last, index.why)
