"""An Iceberg table beside what its branches have to hold, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import IcebergTable
from delvec.iceberg.write.report import KeyDeleteReport
from tests.iceberg.deletes.tables import open_new

ENABLED = {"write.delete.equality-vector.enabled": "true"}

Rows = list[tuple[Any, ...]]


def found(rows: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows of a DataFrame, however often each."""
    return Counter(map(_plain, rows.collect()))


def stock(table: IcebergTable, ref: str | int | None = None) -> DataFrame:
    """The rows of a branch or snapshot, by stock Iceberg."""
    table.spark.catalog.refreshTable(table.name)
    at = "" if ref is None else f" VERSION AS OF {ref if isinstance(ref, int) else repr(ref)}"
    return table.spark.sql(f"SELECT * FROM {table.name}{at}")


@dataclass
class Mirror:
    """A table and the rows of its branches; each change is made to both."""

    table: IcebergTable
    ddl: str
    branches: dict[str, Rows] = field(default_factory=lambda: {"main": []})
    staging: set[str] = field(default_factory=set)  # what stock Iceberg need not be able to read

    @classmethod
    def new(
        cls,
        spark: SparkSession,
        columns: str,
        rest: str = "",
        version: int = 3,
        properties: dict[str, str] | None = None,
    ) -> Mirror:
        return cls(open_new(spark, columns, rest, version, properties), columns)

    def frame(self, rows: Iterable[tuple[Any, ...]], more: str = "") -> DataFrame:
        """Rows with the columns of the table, and more."""
        return self.table.spark.createDataFrame(list(rows), self.ddl + more)

    def append(self, rows: Rows, branch: str = "main") -> KeyDeleteReport:
        report = self.table.append(self.frame(rows), branch=branch)
        self._model(branch).extend(rows)
        return report

    def insert(self, values: str, rows: Rows, branch: str = "main") -> None:
        """Insert by SQL, which stock Iceberg runs."""
        self.table.spark.sql(f"INSERT INTO {self._sql(branch)} VALUES {values}")
        self._model(branch).extend(rows)

    def delete_keys(
        self, keys: Sequence[Any], *columns: str, branch: str = "main", **more: object
    ) -> KeyDeleteReport:
        options: dict[str, Any] = {"branch": branch, **more}
        report = self.table.delete_keys(list(keys), columns=columns, **options)
        places = [self.place(name) for name in columns]
        gone = {key if isinstance(key, tuple) else (key,) for key in keys}
        self.drop(lambda row: tuple(row[place] for place in places) in gone, branch)
        return report

    def upsert(
        self,
        rows: Rows,
        *keys: str,
        deleted: Rows | None = None,
        branch: str = "main",
        **more: object,
    ) -> KeyDeleteReport:
        """Upsert rows, and delete those that have the keys of others."""
        deleted = deleted or []
        marked = [*((*row, "I") for row in rows), *((*row, "D") for row in deleted)]
        frame = self.frame(marked, ", __op string")
        options: dict[str, Any] = {"branch": branch, "delete_where": "__op = 'D'", **more}
        report = self.table.upsert(frame, keys, **options)
        places = [self.place(name) for name in keys]
        gone = {tuple(row[place] for place in places) for row in (*rows, *deleted)}
        self.drop(lambda row: tuple(row[place] for place in places) in gone, branch)
        self._model(branch).extend(rows)
        return report

    def sql_delete(
        self, condition: str, matches: Callable[[tuple[Any, ...]], bool], branch: str = "main"
    ) -> None:
        """Delete by SQL, which stock Iceberg runs."""
        self.table.spark.catalog.refreshTable(self.table.name)
        self.table.spark.sql(f"DELETE FROM {self._sql(branch)} WHERE {condition}")
        self.drop(matches, branch)

    def create_branch(self, name: str, *, staging: bool = False) -> None:
        self.table.create_branch(name, staging=staging)
        self.branches[name] = list(self.branches["main"])
        if staging:
            self.staging.add(name)

    def drop(self, matches: Callable[[tuple[Any, ...]], bool], branch: str = "main") -> None:
        """Drop rows of the model alone."""
        self.branches[branch] = [row for row in self._model(branch) if not matches(row)]

    def place(self, column: str) -> int:
        names = [part.split()[0] for part in self.ddl.split(", ")]
        return names.index(column)

    def check(self, *branches: str) -> None:
        """Read branches, all by default, by delvec and by stock Iceberg."""
        for branch in branches or tuple(self.branches):
            expected = Counter(map(_plain, self.branches[branch]))
            ours = found(self.table.to_df(branch))
            assert ours == expected, (branch, ours - expected, expected - ours)
            if branch not in self.staging:
                theirs = found(stock(self.table, branch))
                assert theirs == expected, (branch, theirs - expected, expected - theirs)
            else:
                self.check_closed(branch, expected)

    def check_closed(self, branch: str, expected: Counter[tuple[Any, ...]]) -> None:
        """Stock Iceberg reads a staging branch rightly, or refuses to."""
        if self.table.plan_read(branch).vectors == 0:  # none that applies to a data file
            assert found(stock(self.table, branch)) == expected
            return
        refuses(self.table, branch)

    def _model(self, branch: str) -> Rows:
        if branch not in self.branches:
            self.branches[branch] = list(self.branches["main"])
        return self.branches[branch]

    def _sql(self, branch: str) -> str:
        return self.table.name if branch == "main" else f"{self.table.name}.branch_{branch}"


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A value that can be counted."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def refuses(table: IcebergTable, branch: str) -> None:
    """Stock Iceberg cannot read a branch: it fails, and returns no rows."""
    with pytest.raises(Exception, match="is not a Parquet file"):
        stock(table, branch).collect()
