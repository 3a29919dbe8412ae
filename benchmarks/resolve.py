"""`python -m benchmarks.resolve`: equality deletes resolved into deletion vectors.

- In place, by join, against Iceberg's `rewrite_data_files` with a delete threshold of 1: what one
  does today to get rid of equality deletes from Spark.
- By the index against the join, and how well `auto` chooses.
- Reading the table afterwards, against a table that never had deletes, and before.

Each side has a branch of one table, so all begin with the same data files and deletes; branches are
moved back before each round. Iceberg's procedure has `main`, the only branch that it works on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import numpy as np
import pyarrow as pa

import delvec
from benchmarks.delta import session
from benchmarks.runner import REGISTRY, Contest, Peer, machine, report, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from delvec import IcebergTable

Key = Literal["long", "string"]
Spread = Literal["scattered", "clustered"]
Strategy = Literal["auto", "join", "index"]

# Goals, for tables of full size: smaller ones mostly measure what a job costs however small.
REWRITE_AT_MOST: Final = 1 / 6
AUTO_AT_MOST: Final = 1.3  # of the index, and of the join: so of the better one
CLEAN_AT_MOST: Final = 1.2
ROWS: Final = 20_000_000
DELETES: Final = 20
FILES: Final = 16
ROUNDS: Final = 3
KEYS: Final[dict[Key, str]] = {"long": "id", "string": "concat('k', md5(string(id)))"}
COLUMNS: Final = (
    "id * 7 AS a",
    "double(hash(id)) AS b",
    "concat('name-', id % 1000) AS c",
    "int(id % 100) AS d",
)
SUMS: Final = ("count(*)", "sum(a)", "sum(b)", "sum(d)")


@dataclass(frozen=True)
class Case:
    """A table of so many rows, by the type of its key."""

    key: Key
    rows: int

    @property
    def name(self) -> str:
        """The name of the table."""
        return f"lake.bench.resolve_{self.key}"

    @property
    def many(self) -> int:
        """How many keys the delete files of the first comparison have: 1 million of 20."""
        return self.rows // 20

    def goal(self, at_most: float) -> float | None:
        """Return a goal, if it holds for a table of this size."""
        return at_most if self.rows >= ROWS else None

    def select(self, ids: DataFrame) -> DataFrame:
        """Return the rows of some ids."""
        return ids.selectExpr(f"{KEYS[self.key]} AS key", *COLUMNS)

    def keys_of(self, ids: NDArray[np.int64]) -> DataFrame:
        """Return the keys of some ids."""
        named = session().createDataFrame(pa.table({"id": ids})).coalesce(2)
        return named.selectExpr(f"{KEYS[self.key]} AS key")


def create(name: str, case: Case, ids: DataFrame) -> IcebergTable:
    """Write a table by Iceberg's own writer, in the order of ids."""
    spark = session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    kind = {"long": "BIGINT", "string": "STRING"}[case.key]
    spark.sql(
        f"CREATE TABLE {name} (key {kind}, a BIGINT, b DOUBLE, c STRING, d INT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.distribution-mode' = 'none')"
    )
    case.select(ids).writeTo(name).append()
    return delvec.IcebergTable.for_name(spark, name)


def all_ids(case: Case) -> DataFrame:
    return session().range(0, case.rows, 1, FILES)


@cache
def table_of(case: Case) -> tuple[IcebergTable, int]:
    """Return a table in 16 files, and its snapshot without deletes."""
    table = create(case.name, case, all_ids(case))
    return table, head_of(table)


def head_of(table: IcebergTable, branch: str = "main") -> int:
    found = {each["name"]: each["snapshot_id"] for each in table.refs().collect()}
    return int(found[branch])


@cache
def deleted_ids(case: Case) -> NDArray[np.int64]:
    return np.random.default_rng(1).permutation(case.rows)[: case.many]


@cache
def with_deletes(case: Case) -> tuple[IcebergTable, int]:
    """Return the table and a snapshot of main with 20 equality-delete files of random keys."""
    table, _ = table_of(case)
    for some in np.array_split(deleted_ids(case), DELETES):
        table.delete_keys(case.keys_of(some), "key")
    return table, head_of(table)


def rows_of(table: IcebergTable, branch: str) -> DataFrame:
    """Return the rows of a branch, read by stock Iceberg."""
    return session().read.option("branch", branch).table(table.name)


def sums(rows: DataFrame) -> Any:  # noqa: ANN401
    return rows.selectExpr(*SUMS).collect()


def all_columns(rows: DataFrame) -> Any:  # noqa: ANN401
    return rows.selectExpr("sum(hash(*))").collect()


def restart(table: IcebergTable, snapshot_id: int, branches: tuple[str, ...]) -> None:
    """Move branches to a snapshot, back or for the first time."""
    known = {each["name"]: each["snapshot_id"] for each in table.refs().collect()}
    for branch in branches:
        if branch not in known:
            table.create_branch(branch, snapshot_id=snapshot_id)
        elif known[branch] != snapshot_id:
            table.rollback(snapshot_id, branch=branch)


def require_resolved(table: IcebergTable, branch: str) -> None:
    """Make sure that a branch has no equality delete left."""
    plan = table.plan_read(branch)
    assert plan.reader == "iceberg", plan


def in_place(case: Case) -> Contest:
    """Resolve by join, and rewrite all data files that have deletes."""
    table, start = with_deletes(case)

    def theirs() -> None:
        session().sql(
            f"CALL lake.system.rewrite_data_files(table => '{case.name}',"
            " options => map('delete-file-threshold', '1'))"
        ).collect()

    def agree(*_: object) -> None:
        require_resolved(table, "resolved")
        resolved, rewritten = (sums(rows_of(table, each)) for each in ("resolved", "main"))
        assert resolved == rewritten, (resolved, rewritten)
        assert resolved[0][0] == case.rows - case.many, resolved

    return Contest(
        lambda: table.resolve(target="resolved", index="join"),
        [Peer("rewrite_data_files", theirs, case.goal(REWRITE_AT_MOST))],
        agree,
        ROUNDS,
        partial(restart, table, start, ("resolved", "main")),
    )


def chosen_ids(case: Case, count: int, spread: Spread) -> NDArray[np.int64]:
    """Return ids all over the table, or those of consecutive rows."""
    if spread == "scattered":
        return np.random.default_rng(2).permutation(case.rows)[:count]
    return np.arange(count) + (case.rows - count) // 2


@cache
def with_index(case: Case) -> tuple[IcebergTable, int]:
    """Return the table with an index that is up to date, and its snapshot without deletes."""
    table, start = table_of(case)
    restart(table, start, ("clean",))
    table.build_index("key", target="clean")
    return table, start


def strategies(case: Case, count: int, spread: Spread) -> Contest:
    """Resolve one equality-delete file as `auto` chooses, and by either strategy."""
    table, start = with_index(case)
    base = f"{spread}-{count}"
    table.create_branch(base, snapshot_id=start)
    ids = chosen_ids(case, count, spread)
    table.delete_keys(case.keys_of(ids), "key", branch=base)
    snapshot = head_of(table, base)
    names: tuple[Strategy, ...] = ("auto", "index", "join")
    branches = {each: f"{base}-{each}" for each in names}

    def resolved(how: Strategy) -> str:
        made = table.resolve("key", target=branches[how], index=how)
        assert made.rows_deleted == count, made
        return made.strategy if how == "auto" else how

    def agree(*chosen: str) -> None:
        click.echo(f"  auto chose {chosen[0]}", err=True)
        found = [sums(rows_of(table, each)) for each in branches.values()]
        assert found[0] == found[1] == found[2], found
        assert found[0][0][0] == case.rows - count, found

    peers = [Peer(each, partial(resolved, each), case.goal(AUTO_AT_MOST)) for each in names[1:]]
    prepare = partial(restart, table, snapshot, tuple(branches.values()))
    return Contest(partial(resolved, "auto"), peers, agree, ROUNDS, prepare)


def reads(case: Case, query: Callable[[DataFrame], Any]) -> Contest:
    """Read after resolving, by stock Iceberg; a table without deletes; and before resolving."""
    table, start = with_deletes(case)
    restart(table, start, ("read", "before"))
    if head_of(table, "read") == start:
        table.resolve(target="read", index="join")
    clean = clean_table(case)

    def agree(*found: Any) -> None:  # noqa: ANN401
        assert found[0] == found[1] == found[2], found

    peers = [
        Peer("a clean table", lambda: query(rows_of(clean, "main")), case.goal(CLEAN_AT_MOST)),
        Peer("before resolving", lambda: query(rows_of(table, "before"))),
    ]
    return Contest(lambda: query(rows_of(table, "read")), peers, agree, ROUNDS, warm_ups=1)


@cache
def clean_table(case: Case) -> IcebergTable:
    """Return a table with the rows that are left, in as many files and in the same order."""
    gone = session().createDataFrame(pa.table({"id": deleted_ids(case)}))
    ids = all_ids(case).join(gone.hint("broadcast"), "id", "left_anti")
    return create(f"{case.name}_clean", case, ids)


def contests(rows: int) -> dict[str, Callable[[], Contest]]:
    """Return all comparisons, with tables of so many rows."""
    found: dict[str, Callable[[], Contest]] = {}
    for key in KEYS:
        case = Case(key, rows)
        found[f"resolve-in-place-{key}"] = partial(in_place, case)
    long = Case("long", rows)
    found["resolve-read-sums"] = partial(reads, long, sums)
    found["resolve-read-all-columns"] = partial(reads, long, all_columns)
    for key in KEYS:
        case = Case(key, rows)
        for count in dict.fromkeys(min(each, case.many) for each in (100, 10_000, 1_000_000)):
            for spread in ("scattered", "clustered"):
                name = f"resolve-{count}-{spread}-{key}"
                found[name] = partial(strategies, case, count, spread)
    return found


REGISTRY.update(contests(ROWS))


@click.command()
@click.argument("name", default="")
@click.option("--rows", type=int, default=ROWS, show_default=True, help="Rows of each table.")
@click.option("--rounds", type=int, default=2, show_default=True, help="How often each side runs.")
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path),
    default=Path("bench-results/resolve.json"),
    show_default=True,
    help="Where the results go.",
)
def main(name: str, rows: int, rounds: int, file: Path) -> None:
    """Run the comparisons whose names contain NAME, all by default."""
    chosen = {key: prepare for key, prepare in contests(rows).items() if name in key}
    if not chosen:
        raise click.BadParameter(f"no benchmark has {name!r} in its name")
    results = []
    for key, prepare in chosen.items():
        click.echo(f"{key} …", err=True)
        results += run(key, prepare(), rounds)
    report(results, machine(), file)


if __name__ == "__main__":
    main()
