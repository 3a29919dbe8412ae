"""Random changes of an Iceberg table, by delvec and by stock Iceberg, against plain Python."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.iceberg.deletes.tables import rewrite_data_files
from tests.iceberg.table.mirror import ENABLED, Mirror, found

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id bigint, part string, n int"
LAYOUTS = ("", "PARTITIONED BY (part)", "PARTITIONED BY (bucket(2, id))")
SLOW_EXAMPLES = min(40, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 40))

Step = tuple[Any, ...]

ids = st.one_of(st.integers(0, 9), st.integers(-2, 9), st.none())
rows = st.tuples(ids, st.sampled_from(["a", "b", None]), st.integers(0, 3))
changes = st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: row[0])
branches = st.sampled_from(["main", "main", "audit", "own"])
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("append"), branches, st.lists(rows, min_size=1, max_size=5)),
    st.tuples(st.just("upsert"), branches, changes, st.integers(0, 4)),
    st.tuples(st.just("delete_keys"), branches, st.lists(ids, min_size=1, max_size=4)),
    st.tuples(
        st.just("delete_pairs"),
        branches,
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), ids), min_size=1, max_size=3),
    ),
    st.tuples(
        st.just("sql_delete"),
        st.sampled_from(["main", "audit"]),
        st.sampled_from(["merge-on-read", "copy-on-write"]),
        st.integers(0, 9),
    ),
    st.tuples(st.just("delete_where"), branches, st.integers(0, 3)),
    st.tuples(st.just("consolidate_deletes"), branches),
    st.tuples(st.just("rewrite_data_files"), st.booleans()),
    st.tuples(st.just("rollback"), branches, st.integers(0, 3)),
    st.tuples(st.just("create_branch"), st.sampled_from(["audit", "own"])),
    st.tuples(st.just("drop_branch"), st.sampled_from(["audit", "own"])),
    st.tuples(st.just("fast_forward")),
    st.tuples(st.just("expire_snapshots")),
)

# Conditions that prune data files and deletes, and what they mean.
CONDITIONS: list[tuple[str, Callable[[tuple[Any, ...]], bool]]] = [
    ("id = 3", lambda row: row[0] == 3),
    ("part = 'a' AND n < 2", lambda row: row[1] == "a" and row[2] < 2),
    ("id IS NULL OR id > 6", lambda row: row[0] is None or row[0] > 6),
    ("part IS NULL", lambda row: row[1] is None),
    ("id IN (1, 2, 8)", lambda row: row[0] in (1, 2, 8)),
]


class Machine:
    """A table, its model, and the rows of each snapshot, for rollbacks."""

    def __init__(self, spark: SparkSession, layout: str, version: int) -> None:
        self.mirror = Mirror.new(spark, COLUMNS, layout, version, ENABLED)
        self.spark, self.table = spark, self.mirror.table
        self.snapshots: dict[int, list[tuple[Any, ...]]] = {}
        self.mirror.append([(number, "ab"[number % 2], 0) for number in range(6)])
        self.remember()

    def remember(self) -> None:
        for name, ref in self.table._load().metadata.refs.items():
            self.snapshots.setdefault(ref.snapshot_id, list(self.mirror.branches[name]))

    def run(self, step: Step) -> str | None:
        """Take a step; return the branch that it changed, if it is one."""
        name, *arguments = step
        act: Callable[..., None] = getattr(self, name)
        if arguments and arguments[0] in ("main", "audit", "own") and "branch" not in name:
            branch = str(arguments.pop(0))
            if branch not in self.mirror.branches:
                branch = "main"
            act(branch, *arguments)
            self.remember()
            return branch
        act(*arguments)
        self.remember()
        return None

    def check_where(self, where: str, matches: Callable[[tuple[Any, ...]], bool]) -> None:
        for branch, kept in self.mirror.branches.items():
            expected = Counter((row[2],) for row in kept if matches(row))
            assert found(self.table.to_df(branch, where=where, columns=["n"])) == expected

    def append(self, branch: str, new: list[tuple[Any, ...]]) -> None:
        self.mirror.append(new, branch)

    def upsert(self, branch: str, changes: list[tuple[Any, ...]], deletes: int) -> None:
        new, deleted = changes[deletes:], changes[:deletes]
        self.mirror.upsert(new, "id", deleted=deleted, branch=branch)

    def delete_keys(self, branch: str, keys: list[int | None]) -> None:
        self.mirror.delete_keys(keys, "id", branch=branch)

    def delete_pairs(self, branch: str, keys: list[tuple[Any, ...]]) -> None:
        self.mirror.delete_keys(keys, "part", "id", branch=branch)

    def sql_delete(self, branch: str, mode: str, id_: int) -> None:
        self.spark.sql(
            f"ALTER TABLE {self.table.name} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')"
        )
        self.mirror.sql_delete(f"id = {id_}", lambda row: row[0] == id_, branch)

    def delete_where(self, branch: str, n: int) -> None:
        """Delete by position."""
        self.table.delete(f"n = {n} AND part = 'a'", branch=branch)
        self.mirror.drop(lambda row: row[1:] == ("a", n), branch)

    def consolidate_deletes(self, branch: str) -> None:
        self.table.consolidate_deletes(branch=branch)

    def rewrite_data_files(self, remove: bool) -> None:  # noqa: FBT001
        more = ["remove-dangling-deletes"] if remove else []
        rewrite_data_files(self.spark, self.table.name, "", *more)

    def rollback(self, branch: str, back: int) -> None:
        metadata = self.table._load().metadata
        own = [each.id for each in metadata.ancestors(branch)]
        if branch in self.mirror.staging:
            mine = {each.id for each in metadata.ancestors()}
            own = [each for each in own if each not in mine]
        own = [each for each in own if each in self.snapshots]
        if not own:
            return
        goal = own[min(back, len(own) - 1)]
        self.table.rollback(goal, branch=branch)
        self.mirror.branches[branch] = list(self.snapshots[goal])

    def create_branch(self, branch: str) -> None:
        if branch not in self.mirror.branches:
            self.mirror.create_branch(branch, staging=branch == "own")

    def drop_branch(self, branch: str) -> None:
        if branch in self.mirror.branches:
            self.table.drop_branch(branch)
            del self.mirror.branches[branch]
            self.mirror.staging.discard(branch)

    def fast_forward(self) -> None:
        metadata = self.table._load().metadata
        if "audit" not in self.mirror.branches:
            return
        if metadata.refs["main"].snapshot_id in {each.id for each in metadata.ancestors("audit")}:
            self.table.fast_forward("main", "audit")
            self.mirror.branches["main"] = list(self.mirror.branches["audit"])

    def expire_snapshots(self) -> None:
        self.table.expire_snapshots("2100-01-01", retain_last=1)


def run(spark: SparkSession, layout: str, version: int, plan: list[Step]) -> None:
    machine = Machine(spark, layout, version)
    for number, step in enumerate(plan):
        machine.run(step)
        machine.mirror.check()
        machine.check_where(*CONDITIONS[number % len(CONDITIONS)])
    spark.sql(f"DROP TABLE {machine.table.name} PURGE")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_changes(spark: SparkSession, layout: str, version: int) -> None:
    @seed(os.urandom(8).hex() if "CI" not in os.environ else 1)
    @settings(max_examples=max(1, SLOW_EXAMPLES // 6), suppress_health_check=list(HealthCheck))
    @given(st.lists(steps, min_size=6, max_size=16))
    def changed(plan: list[Step]) -> None:
        run(spark, layout, version, plan)

    changed()
