"""One table, written by delvec and delta-spark in turn: all readers see what a model says."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from tests.delta import log_files
from tests.delta.rows import rows_of
from tests.interop.expressions import (
    LEAVES,
    Append,
    Delete,
    Expression,
    Merge,
    Outcome,
    Update,
    literal,
)
from tests.interop.plans import COLUMNS, ENGINES, Engine, Kind, Step, kind_of, plan
from tests.interop.runs import SMALL_ROW_GROUPS, Run, as_arrow, bag, checkpoints, vector_updates
from tests.spark.delta import readers

SLOW_EXAMPLES = min(40, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 40))
KINDS = {
    "plain": (Kind(), 29),
    "partitioned": (Kind(("part",)), 28),
    "mapped": (Kind(("day",), mapped=True), 226),
    "copied": (Kind(vectors=False), 198),
}
CASES = (
    "partitioned",
    "partitioned and maintained",
    "plain and maintained",
    "mapped and maintained",
    "copied",
)
OPERATIONS = {"append": "WRITE", "overwrite": "WRITE", "delete": "DELETE"} | {
    "update": "UPDATE",
    "merge": "MERGE",
}
DELETE_AND_UPDATE = {
    *("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes", "numCopiedRows"),
    *("numDeletionVectorsAdded", "numDeletionVectorsRemoved", "numDeletionVectorsUpdated"),
    "numAddedChangeFiles",
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
        *("numTargetDeletionVectorsUpdated", "numTargetChangeFilesAdded"),
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


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("case", CASES)
def test_all_readers_see_what_a_model_says(spark: SparkSession, tmp_path: Path, case: str) -> None:
    name, _, maintenance = case.partition(" and ")
    with readers.settings_of(spark, {} if name == "plain" else readers.INTERPRETED):
        check(spark, tmp_path / "t", *KINDS[name], thorough=bool(maintenance))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SLOW_EXAMPLES))
def test_all_readers_see_the_model_of_any_plan(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    run = carried_out(spark, tmp_path / "t", kind_of(seed), plan(seed, more=10))
    newest = run.version
    ranges = [(a, b) for a in range(newest + 1) for b in range(a, newest + 1)]
    check_the_log(run, ranges)
    check_maintenance(run)


def test_the_plans_use_every_clause_and_condition() -> None:
    fired: Counter[str] = Counter()
    about: Counter[str] = Counter()
    for _, seed in KINDS.values():
        rows: list[dict[str, Any]] = []
        for step in plan(seed):
            outcome = step.operation.apply(rows)
            rows = outcome.rows
            fired += outcome.fired
            about.update(f"{step.operation.name} {name}" for name in step.about)
    assert set(fired) >= {
        *("matched: update", "matched: update all", "matched: delete"),
        *("not matched: insert", "not matched: insert all"),
        *("not matched by source: update", "not matched by source: delete", "none"),
    }
    assert {name.split(" ", 1)[1] for name in about} >= {*LEAVES, "whole", "and", "or", "not"}


def check(spark: SparkSession, path: Path, kind: Kind, seed: int, *, thorough: bool) -> None:
    steps = plan(seed)
    run = carried_out(spark, path, kind, steps)
    assert {(step.engine, step.operation.name) for step, _ in run.steps.values()} == {
        (engine, operation) for engine in ENGINES for operation in OPERATIONS
    }
    check_appends(run)
    assert run.reads["deltalake"] == (0 if kind.mapped else len(steps))
    assert set(run.checkpoints.values()) == set(ENGINES)
    newest = run.version
    check_the_log(run, [(0, newest), (2, 2), (newest // 2, newest - 1)])
    # Every statement of delta-spark takes a second: not all kinds go through these.
    if thorough:
        check_maintenance(run)


def carried_out(spark: SparkSession, path: Path, kind: Kind, steps: Iterable[Step]) -> Run:
    run = Run(spark, path, kind)
    first, *others = steps
    run.start(first.engine)
    for step in (first, *others):
        run.do(step)
    return run


def check_appends(run: Run) -> None:
    """Make sure that both engines wrote several files at once, of several row groups."""
    seen: set[str] = set()
    commits = log_files.commits(run.path)
    for version, (step, _) in run.steps.items():
        adds = [action["add"] for action in commits[version] if "add" in action]
        if isinstance(step.operation, Append) and len(adds) > 1:
            groups = log_files.row_groups(run.path, adds)
            seen.update({step.engine} if max(groups) > 1 else ())
    assert seen == set(ENGINES)


def check_the_log(run: Run, ranges: list[tuple[int, int]]) -> None:
    check_old_versions(run)
    check_history(run)
    if run.kind.feed:
        check_changes(run, ranges)
    for engine in ENGINES:
        check_without_older_commits(run, engine)


def check_old_versions(run: Run) -> None:
    for version, rows in run.states.items():
        found = DeltaTable.for_path(None, run.path).to_arrow(version=version)
        assert bag(found) == bag(as_arrow(rows)), f"version {version}"


def check_history(run: Run) -> None:
    shown = {
        row.version: row for row in run.spark.sql(f"DESCRIBE HISTORY delta.`{run.path}`").collect()
    }
    assert sorted(shown) == list(range(run.version + 1))
    for version, (step, outcome) in run.steps.items():
        row, name = shown[version], step.operation.name
        assert row.operation == OPERATIONS[name]
        if step.engine == "delvec":
            assert row.engineInfo.startswith("delvec/")
            metrics = row.operationMetrics
            assert set(metrics) >= METRICS[name], f"{step}: {METRICS[name] - set(metrics)}"
            found = {key: int(metrics[key]) for key in expected_metrics(step, outcome)}
            assert found == expected_metrics(step, outcome), f"version {version}: {step}"


def expected_metrics(step: Step, outcome: Outcome) -> dict[str, int]:
    match step.operation:
        case Merge(source):
            by_source = "not matched by source: "
            return {
                "numSourceRows": len(source),
                "numTargetRowsInserted": outcome.inserted,
                "numTargetRowsUpdated": outcome.updated,
                "numTargetRowsDeleted": outcome.deleted,
                "numTargetRowsNotMatchedBySourceUpdated": outcome.fired[f"{by_source}update"],
                "numTargetRowsNotMatchedBySourceDeleted": outcome.fired[f"{by_source}delete"],
                "numTargetRowsMatchedDeleted": outcome.fired["matched: delete"],
            }
        case Delete():
            return {"numDeletedRows": outcome.deleted}
        case Update():
            return {"numUpdatedRows": outcome.updated}
    return {"numOutputRows": outcome.inserted}


def check_changes(run: Run, ranges: list[tuple[int, int]]) -> None:
    """Hold delvec's feed against delta-spark's, and both against the rows before and after."""
    reading = run.spark.read.format("delta").option("readChangeFeed", "true")
    expected = changed(reading.option("startingVersion", 0).load(str(run.path)))
    table = DeltaTable.for_path(run.spark, run.path)
    for start, end in ranges:
        wanted = Counter({row: n for row, n in expected.items() if start <= row[-2] <= end})
        assert changed(table.changes(start, end)) == wanted, f"{start} to {end}"
    for version in range(1, run.version + 1):
        signs: Counter[Any] = Counter()
        kinds: Counter[str] = Counter()
        for (*row, kind, at, _), count in expected.items():
            if at == version:
                kinds[kind] += count
                signs[tuple(row)] += count if kind in ("insert", "update_postimage") else -count
        before, after = (bag(as_arrow(run.states[number])) for number in (version - 1, version))
        after.subtract(before)
        step, outcome = run.steps[version]
        assert +signs == +after, f"version {version}: {step}"
        assert -signs == -after, f"version {version}: {step}"
        if step.engine == "delvec" and step.operation.name != "overwrite":
            assert kinds == +Counter(
                insert=outcome.inserted,
                delete=outcome.deleted,
                update_preimage=outcome.updated,
                update_postimage=outcome.updated,
            ), f"version {version}: {step}"


def changed(feed: DataFrame) -> Counter[Any]:
    return rows_of(
        feed.select(*COLUMNS, "_change_type", "_commit_version", "_commit_timestamp").toArrow()
    )


def check_without_older_commits(run: Run, engine: Engine) -> None:
    """Read a copy that has only one checkpoint, and the commits since."""
    version = max((at for at, by in run.checkpoints.items() if by == engine), default=None)
    if version is None:
        return
    copy = run.path.with_name(f"{run.path.name} from a checkpoint of {engine}")
    shutil.copytree(run.path, copy)
    for file in (copy / "_delta_log").iterdir():
        number = file.name.lstrip(".").split(".")[0]
        other = ".checkpoint." in file.name and number != f"{version:020d}"
        older = number.isdigit() and int(number) < version
        if other or older or file.name.endswith((".crc", "_last_checkpoint")):
            file.unlink()
    assert checkpoints(copy) == [version]
    run.check(copy)


def check_maintenance(run: Run) -> None:
    """Let delta-spark restore, compact and clean a table that delvec wrote to, and go on."""
    ours = [version for version, (step, _) in run.steps.items() if step.engine == "delvec"]
    restored = max(ours, key=lambda version: len(run.states[version]))
    run.sql(f"RESTORE {{T}} TO VERSION AS OF {restored}", run.states[restored])
    # Two of three rows of any file stay: vectors grow, those of one engine by the other.
    turns: list[tuple[Engine, int]] = [("delvec", 1), ("delta-spark", 4), ("delvec", 7)]
    for engine, rest in turns:
        run.do(Step(engine, Delete(_every_ninth(rest)), (), checkpoint=False))
    if run.kind.vectors:
        assert vector_updates(run.path) >= {("delvec", "delta-spark"), ("delta-spark", "delvec")}
    run.sql("OPTIMIZE {T}")
    run.do(Step("delvec", Delete(_every_ninth(2)), (), checkpoint=False))
    run.sql("REORG TABLE {T} APPLY (PURGE)")
    # Every remove names the vector of its add in the same words.
    assert not any("deletionVector" in add for add in log_files.live_adds(run.path))
    run.sql("VACUUM {T} RETAIN 0 HOURS")
    values = {"name": literal("last")}
    run.do(Step("delvec", Update(values, _every_ninth(5)), (), checkpoint=False))
    run.do(Step("delta-spark", Update(values, _every_ninth(8)), (), checkpoint=False))


def _every_ninth(rest: int) -> Expression:
    return Expression(f"id % 9 = {rest}", lambda scope: (scope[""]["id"] or 0) % 9 == rest)
