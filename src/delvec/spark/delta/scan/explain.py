"""What a query over Delta tables reads: files left out and why, vectors, and the form they take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import InvalidArgumentError
from delvec.report.figures import size
from delvec.spark import jvm
from delvec.spark.delta.scan.file_index import find_index
from delvec.spark.jvm import items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from delvec.spark.delta.scan.file_index import Listing

__all__ = ["ReadPart", "ReadReport", "explain"]

_FORMS: Final = {
    "vector": "each row's bit is tested in generated code; the vector is a constant of its file",
    "number": "each row's bit is tested in generated code; the vectors come by a broadcast join,"
    " since Spark reads this by rows",
    "tasks": "tasks of Python read these files and their vectors, since all vectors together may"
    " take more than spark.delvec.scan.vectorMemory",
    "clean": "read as plain Parquet, rows are not tested",
}


@dataclass(frozen=True)
class ReadPart:
    """One scan of a query: the files of a table with vectors, or those without."""

    table: str
    version: int | None
    form: str
    listing: Listing | None

    @property
    def title(self) -> str:
        """What is read, in words."""
        return self.table if self.version is None else f"{self.table}, version {self.version}"

    def __str__(self) -> str:
        kind = "without vectors" if self.form == "clean" else "with vectors"
        found = self.listing
        if found is None:
            return f"files {kind}: {_FORMS[self.form]}"
        read = f"{size(found.bytes_read)} of {size(found.bytes_total)}"
        lines = [f"files {kind}: {found.read:,} of {found.total:,} are read, {read}"]
        if found.by_partition or found.by_statistics:
            reasons = f"{found.by_partition:,} by partition values, {found.by_statistics:,} by"
            lines.append(f"  left out: {reasons} statistics")
        if found.vectors:
            lines.append(f"  vectors: {found.vectors:,}, {size(found.vector_bytes)} as bits")
        if found.read:
            lines.append(f"  {_FORMS[self.form]}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ReadReport:
    """What a query reads; prints as a text, and renders in notebooks."""

    parts: tuple[ReadPart, ...]

    def __str__(self) -> str:
        lines = []
        for title, parts in groupby(self.parts, key=lambda part: part.title):
            lines += [title, *(indent(str(part), "  ") for part in parts)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Give a document for programs."""
        return {"parts": [asdict(part) for part in self.parts]}

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def explain(df: DataFrame) -> ReadReport:
    """Tell what a query reads of the Delta tables in it, from `DeltaTable.to_df`.

    The query is planned, and the vectors of the files that it reads are loaded, as when it runs;
    no row is read.

        print(delvec.explain(table.to_df().where("day = '2026-01-31'")))

    Raises:
        InvalidArgumentError: The query reads no Delta table through delvec.
    """
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
    """Give all scans of a plan, those inside adaptive stages and subqueries too."""
    kind = plan.getClass().getSimpleName()
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
    kind = leaf.getClass().getSimpleName()
    if kind == "BatchScanExec" and leaf.table().name() == "delvec":
        yield ReadPart("delvec data source", None, "tasks", None)
    if kind != "FileSourceScanExec":
        return
    index = find_index(leaf.relation().location().toString())
    if index is not None:
        leaf.selectedPartitions()  # where Spark asks for the files
        forms = [name for name in index.hidden if name in ("vector", "number")]
        form = forms[0] if forms else "clean"
        yield ReadPart(index.snapshot.table, index.snapshot.version, form, index.last)
