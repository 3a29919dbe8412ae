"""What a DataFrame reads of a table, and at which version: found in Spark's plan; runs no job.

Seen are scans of delvec, reads of delta-spark by path or by name, `format("delvec")`, and plain
reads of the table's files; in views, joins and subqueries, and through caches. Not seen is what a
plan does not tell any more: rows of checkpoints, of RDDs and of `collect()`.

A version that the reader named (`to_df(version=3)`, `versionAsOf`, `VERSION AS OF`) does not count:
its rows are meant, whatever is committed later.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from delvec.datasource import DelvecDataSource
from delvec.datasource.options import FOLLOWS
from delvec.delta.skipping.predicate import Always, Or, Predicate
from delvec.delta.write.change import PlainListing, SourceRead
from delvec.delta.write.transaction import Attempt
from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.delta.scan.file_index import FileIndex, find_index
from delvec.spark.engine import time_zone
from delvec.storage.backend import locate
from delvec.storage.listed_files import local_path, store_of

# How old a version delta-spark may read for the newest; not at all by default.
_STALENESS: Final = "spark.databricks.delta.stalenessLimit"


def depend_on_source(attempt: Attempt, rows: DataFrame) -> None:
    """Note what rows to be written have read of the very table, if they have."""
    snapshot = attempt.snapshot
    attempt.depend_on(reads_of(rows, snapshot.table, lambda: snapshot.version))


def reads_of(df: DataFrame, table: str, newest: Callable[[], int]) -> tuple[SourceRead, ...]:
    plan: Any = df._jdf.queryExecution().normalized()  # noqa: SLF001
    # The caches of now: `withCachedData()` has those of the time when the DataFrame was first run.
    caches = jvm.session_of(df.sparkSession).sharedState().cacheManager()
    return tuple(_PlanReads(df, _normal(table), newest).reads(_through(caches, plan.clone())))


def _through(caches: Any, plan: Any) -> Any:  # noqa: ANN401
    """Return a plan with the caches that it would read, by the method of this Spark."""
    try:
        which = getattr(caches, "useCachedData$default$2")()  # the argument that 4.3 has added
    except Py4JError:
        return caches.useCachedData(plan)
    return caches.useCachedData(plan, which)


class _PlanReads:
    def __init__(self, df: DataFrame, table: str, newest: Callable[[], int]) -> None:
        self._df, self._spark, self._table, self._newest = df, df.sparkSession, table, newest

    def reads(self, plan: Any, *, cached: bool = False) -> Iterator[SourceRead]:  # noqa: ANN401
        for leaf in _leaves(plan):
            kind = jvm.class_name(leaf)
            if kind == "InMemoryRelation":
                builder = leaf.cacheBuilder()
                yield from self.reads(builder.logicalPlan(), cached=True)
                # It may be computed from another cache, with rows of a still older version.
                yield from self.reads(builder.cachedPlan(), cached=True)
            elif kind == "InMemoryTableScanExec":
                yield from self.reads(leaf.relation(), cached=True)
            elif kind == "AdaptiveSparkPlanExec":
                yield from self.reads(leaf.initialPlan(), cached=cached)
            elif kind == "LogicalRelation" and _is_a(leaf.relation(), "HadoopFsRelation"):
                yield from self._of_files(leaf.relation().location(), cached=cached)
            elif kind == "DataSourceV2Relation":
                yield from self._of_connector(leaf)

    def _of_files(self, index: Any, *, cached: bool) -> Iterator[SourceRead]:  # noqa: ANN401
        name = str(index.getClass().getName())
        given = [str(path.toString()) for path in jvm.items(index.rootPaths())]
        roots = {_normal(each): local_path(each) for each in given}
        if name == "delvec.FileLister":
            ours = find_index(str(index.toString()))
            if self._table in roots and (ours is None or ours.follows):
                yield self._late() if ours is None else self._of_scan(ours, cached=cached)
        elif name.startswith("org.apache.spark.sql.delta."):
            if self._table in roots:
                yield from self._of_delta_spark(index, cached=cached)
        elif any(_overlap(root, self._table) for root in roots):
            names = self._listed(index, roots)
            yield SourceRead(self._newest(), listing=PlainListing(self._table, tuple(roots), names))

    def _late(self) -> SourceRead:
        """Return a read of the newest version, whichever that is when the query runs."""
        return SourceRead(self._newest(), is_fixed=False)

    def _listed(self, index: Any, roots: Mapping[str, str]) -> frozenset[str]:  # noqa: ANN401
        """Return the full names of the files of an index, by its roots as they are and as given."""
        sequences = jvm.java_class(self._spark, "scala.collection.immutable.ArraySeq")
        # One string for all of them: each value of an array would be a call.
        joined = str(sequences.unsafeWrapArray(index.inputFiles()).mkString("\n"))
        names = set()
        for uri in joined.split("\n"):
            name = local_path(unquote(uri))
            root = next((each for each in roots if name.startswith(roots[each])), None)
            names.add(store_of(name) if root is None else root + name[len(roots[root]) :])
        return frozenset(names)

    def _of_scan(self, index: FileIndex, *, cached: bool) -> SourceRead:
        snapshot = index.snapshot
        if cached:  # what it holds is not narrowed by the query
            return SourceRead(snapshot.version)
        predicate = cache(partial(_rows_used, self._df, index))
        return SourceRead(snapshot.version, snapshot.files, predicate, time_zone(self._spark))

    def _of_delta_spark(self, index: Any, *, cached: bool) -> Iterator[SourceRead]:  # noqa: ANN401
        if jvm.class_name(index) != "TahoeLogFileIndex":
            yield SourceRead(int(index.version()))  # chosen files of a version
        elif not index.isTimeTravelQuery():
            # The newest version when the query is planned; a cache was planned earlier.
            is_older = cached or self._spark.conf.get(_STALENESS, "0") != "0"
            version = index.snapshotAtAnalysis().version
            yield SourceRead(int(version())) if is_older else self._late()

    def _of_connector(self, relation: Any) -> Iterator[SourceRead]:  # noqa: ANN401
        table, options = relation.table(), relation.options()
        kind = jvm.class_name(table)
        if kind == "PythonTable" and table.name() == DelvecDataSource.name():
            if _normal(locate(str(options.get("path"))).root) == self._table:
                yield from map(SourceRead, _versions_of_source(self._spark, table, options))
        elif _is_a(table, "FileTable"):
            yield from self._of_files(table.fileIndex(), cached=False)


def _rows_used(df: DataFrame, index: FileIndex) -> Predicate:
    """Return which rows of a scan a query uses, by the filters that Spark has pushed down to it."""
    plan: Any = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    found: list[Predicate] = []
    waiting: list[tuple[Any, Any]] = [
        (each, None) for each in (plan, *jvm.items(plan.subqueriesAll()))
    ]
    while waiting:
        node, condition = waiting.pop()
        kind = jvm.class_name(node)
        if kind == "LogicalRelation":
            relation = node.relation()
            is_files = _is_a(relation, "HadoopFsRelation")
            if is_files and str(relation.location().toString()) == index.name:
                found.append(Always() if condition is None else index.understood(condition))
        below = node.condition() if kind == "Filter" else None
        waiting += [(child, below) for child in jvm.items(node.children())]
    return Or(tuple(found)) if found else Always()


def _leaves(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    for part in (plan, *jvm.items(plan.subqueriesAll())):
        yield from jvm.items(part.collectLeaves())


def _versions_of_source(spark: SparkSession, table: Any, options: Any) -> Iterator[int]:  # noqa: ANN401
    """Return the version that `format("delvec")` took for the newest, if it was to do so."""
    version = options.get("versionAsOf")
    if options.get(FOLLOWS) == "true":
        yield int(version)
    elif version is None and options.get("timestampAsOf") is None:
        field = table.getClass().getDeclaredField("ds")
        field.setAccessible(True)
        none = jvm.view_of(spark).scala.Option.empty()
        made = field.get(table).getOrCreateDataSourceInPython(table.name(), options, none)
        opened = pickle.loads(made.dataSource()).version  # noqa: S301 - our own, from this session
        if opened is None:
            raise InvalidArgumentError(
                f"which version of {options.get('path')} the source reads is not known, since its"
                " schema was given",
                hint='use to_df(), or omit the schema of spark.read.format("delvec")',
            )
        yield opened


def _is_a(thing: Any, name: str) -> bool:  # noqa: ANN401
    """Return whether an object's class is a class or extends it: delta-spark's have no names."""
    kind = thing.getClass()
    while kind is not None:
        if kind.getSimpleName() == name:
            return True
        kind = kind.getSuperclass()
    return False


def _normal(location: str) -> str:
    """Return a location in the one spelling by which locations are compared."""
    path = local_path(location)
    return store_of(path if "://" in path else os.path.realpath(path))


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
