"""One table, written by delvec and delta-spark in turn: all readers see what a model says."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from delvec import DeltaTable
from tests.delta import readers, spark_tables
from tests.interop.expressions import LEAVES
from tests.interop.model import Append, Delete, Merge
from tests.interop.plans import COLUMNS, ENGINES, Kind, Step, kind_of, plan
from tests.interop.runs import SMALL_ROW_GROUPS, Run, bag, checkpoints, vector_updates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.interop.model import Outcome

SLOW_EXAMPLES = min(40, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 40))
KINDS = {
    "plain": (Kind(), 1),
    "partitioned": (Kind(("part",)), 2),
    "mapped": (Kind(("day",), mapped=True), 4),
    "copied": (Kind(vectors=False), 5),
}
OPERATIONS = {"append": "WRITE", "overwrite": "WRITE", "delete": "DELETE"} | {
    "update": "UPDATE",
    "merge": "MERGE",
}
DELETE_AND_UPDATE = {
    *("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes", "numCopiedRows"),
    *("numDeletionVectorsAdded", "numDeletionVectorsRemoved", "numDeletionVectorsUpdated"),
    *("numAddedChangeFiles", "executionTimeMs", "scanTimeMs", "rewriteTimeMs"),
}
METRICS = {
    "append": {"numFiles", "numOutputRows", "numOutputBytes"},
    "overwrite": {"numFiles", "numOutputRows", "numOutputBytes"},
    "delete": DELETE_AND_UPDATE | {"numDeletedRows"},
    "update": DELETE_AND_UPDATE | {"numUpdatedRows"},
    "merge": {
        *("numSourceRows", "numOutputRows", "numTargetRowsInserted", "numTargetRowsUpdated"),
        *("numTargetRowsDeleted", "numTargetRowsCopied", "numTargetRowsMatchedUpdated"),
        *("numTargetRowsMatchedDeleted", "numTargetRowsNotMatchedBySourceUpdated"),
        *("numTargetRowsNotMatchedBySourceDeleted", "numTargetFilesAdded"),
        *("numTargetFilesRemoved", "numTargetBytesAdded", "numTargetBytesRemoved"),
        *("numTargetDeletionVectorsAdded", "numTargetDeletionVectorsRemoved"),
        *("numTargetDeletionVectorsUpdated", "numTargetChangeFilesAdded", "executionTimeMs"),
        *("scanTimeMs", "rewriteTimeMs"),
    },
}


@pytest.fixture(autouse=True)
def small_row_groups(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    more = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    with readers.settings_of(spark, SMALL_ROW_GROUPS | more):
        yield


@pytest.mark.spark
@pytest.mark.parametrize("name", KINDS)
def test_all_readers_see_what_the_model_says(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    kind, seed = KINDS[name]
    steps = plan(seed)
    run = carried_out(spark, tmp_path / "t", kind, steps)
    assert {(step.engine, step.operation.name) for step, _ in run.steps.values()} == {
        (engine, operation) for engine in ENGINES for operation in OPERATIONS
    }
    check_appends(run)
    assert run.reads["deltalake"] == (0 if kind.mapped else len(steps))
    both_ways = {("delvec", "delta-spark"), ("delta-spark", "delvec")}
    assert vector_updates(run.path) >= (both_ways if kind.vectors else set())
    assert set(run.checkpoints.values()) == set(ENGINES)
    newest = run.version
    check_the_rest(run, [(0, newest), (2, 2), (newest // 2, newest - 1)])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SLOW_EXAMPLES))
def test_all_readers_see_what_the_model_says_of_any_plan(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    run = carried_out(spark, tmp_path / "t", kind_of(seed), plan(seed, more=10))
    newest = run.version
    ranges = [(a, b) for a in range(newest + 1) for b in range(a, newest + 1)]
    check_the_rest(run, ranges)


def test_the_plans_use_every_clause_and_condition() -> None:
    fired: Counter[str] = Counter()
    about: Counter[str] = Counter()
    engines = set()
    for _, seed in KINDS.values():
        rows: list[dict[str, Any]] = []
        for step in plan(seed):
            outcome = step.operation.apply(rows)
            rows = outcome.rows
            fired += outcome.fired
            about.update(f"{step.operation.name} {name}" for name in step.about)
            engines.update((step.engine, kind) for kind in outcome.fired)
    assert set(fired) >= {
        *("matched: update", "matched: update all", "matched: delete"),
        *("not matched: insert", "not matched: insert all"),
        *("not matched by source: update", "not matched by source: delete", "none"),
    }
    assert {name.split(" ", 1)[1] for name in about} >= {*LEAVES, "whole", "and", "or", "not"}


def carried_out(spark: SparkSession, path: Path, kind: Kind, steps: Iterable[Step]) -> Run:
    run = Run(spark, path, kind)
    first, *others = steps
    run.start(first.engine)
    for step in (first, *others):
        run.do(step)
    return run


def check_appends(run: Run) -> None:
    """Make sure that both engines wrote several files at once, of several row groups."""
    seen = set()
    commits = spark_tables.commits(run.path)
    for version, (step, _) in run.steps.items():
        adds = [action["add"] for action in commits[version] if "add" in action]
        if isinstance(step.operation, Append) and len(adds) > 1:
            groups = spark_tables.row_groups(run.path, adds)
            seen.update({step.engine} if max(groups) > 1 else ())
    assert seen == set(ENGINES)


def check_the_rest(run: Run, ranges: list[tuple[int, int]]) -> None:
    check_old_versions(run)
    check_history(run)
    if run.kind.feed:
        check_changes(run, ranges)
    for engine in ENGINES:
        check_without_older_commits(run, engine)
    check_maintenance(run)


def check_old_versions(run: Run) -> None:
    for version, rows in run.states.items():
        found = DeltaTable.for_path(None, run.path).to_arrow(version=version)
        assert bag(found) == bag(_arrow(rows)), f"version {version}"


def _arrow(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    from tests.interop.engines import as_arrow

    return as_arrow(rows)
