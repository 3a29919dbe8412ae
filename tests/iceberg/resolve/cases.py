"""Tables that are changed as Flink changes them and then resolved, with what has to hold after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.iceberg.resolve.plan import ResolveOptions
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.resolve import resolve
from tests.iceberg.deletes.tables import by_pyiceberg, new_table
from tests.iceberg.resolve.flink_like import commit_batch

STAGING = "staging"
Form = tuple[int, Literal["join", "index"]]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Deleted:
    """A deleted row: its key, and what else is known of it."""

    values: Values


def minus(*values: Any) -> Deleted:  # noqa: ANN401
    """Return the delete of a row, given the values of its first columns."""
    return Deleted(values)


def form(name: str, *marks: pytest.MarkDecorator) -> Any:  # noqa: ANN401
    return pytest.param((int(name[1]), name[3:]), id=name, marks=marks)


# What finds rows and what writes deletes know nothing of each other: two forms have all four.
FORMS = [form(name, pytest.mark.slow) for name in ("v3 index", "v2 join")]


@dataclass(frozen=True)
class Case:
    """A table, and how its deletes are resolved."""

    table: IcebergTable
    form: Form
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def new(
        cls,
        spark: SparkSession,
        form: Form,
        *keys: str,
        columns: str = "id bigint, g string, v int",
        rest: str = "",
        properties: dict[str, str] | None = None,
    ) -> Case:
        """Make an empty table; its key is `id` by default."""
        name = new_table(spark, columns, rest, form[0], properties)
        names = tuple(each.split()[0] for each in columns.split(", "))
        return cls(IcebergTable.for_name(spark, name), form, keys or ("id",), names)

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def spark(self) -> SparkSession:
        return self.table.spark

    def by(self, *keys: str) -> Case:
        """The same table with another key."""
        return replace(self, keys=keys)

    def sql(self, statement: str) -> list[Values]:
        self.spark.catalog.refreshTable(self.name)
        return list(map(tuple, self.spark.sql(statement.format(t=self.name)).collect()))

    def insert(self, *rows: Values, branch: str = "main") -> None:
        """Append rows by Spark, as one file for each partition."""
        to = self.name if branch == "main" else f"{self.name}.branch_{branch}"
        frame = self.spark.createDataFrame(list(rows), self.spark.table(self.name).schema)
        frame.coalesce(1).writeTo(to).append()

    def batch(
        self, *changes: Values | Deleted, branch: str = STAGING, changelog: bool = False
    ) -> int:
        """Commit a batch as Flink does: rows that are upserted, and deletes."""
        made: list[Any] = [
            ("-", dict(zip(self.columns, each.values, strict=False)))
            if isinstance(each, Deleted)
            else ("+", dict(zip(self.columns, each, strict=True)))
            for each in changes
        ]
        return commit_batch(self.table, made, self.keys, branch=branch, changelog=changelog)

    def rows(self, at: str | int = "main") -> list[Values]:
        """Read all rows by stock Iceberg, in order."""
        version = at if isinstance(at, int) else f"'{at}'"
        found = self.sql(f"SELECT * FROM {{t}} VERSION AS OF {version}")
        return sorted(found, key=lambda row: [(each is not None, each) for each in row])

    def resolve(self, staging: str | None = STAGING, **options: Any) -> ResolveReport:  # noqa: ANN401
        """Resolve, and require what always holds afterwards."""
        asked = {"index": self.form[1], "verify": "rows", **options}
        report = self.table.resolve(self.keys, staging=staging, **asked)
        self.require_resolved(staging, asked.get("target", "main"))
        return report

    def take_over(self, **options: Any) -> ResolveReport:  # noqa: ANN401
        """Resolve the staging branch; require the rows that stock Iceberg reads of it."""
        expected = self.rows(STAGING)
        report = self.resolve(**options)
        assert self.rows(str(options.get("target", "main"))) == expected
        return report

    def resolve_while(
        self, action: Callable[[], object], staging: str | None = STAGING
    ) -> ResolveReport:
        """Resolve, with something else that is committed between the search and the commit."""
        left = [action]

        def between() -> None:
            if left:
                left.pop()()

        choices = ResolveOptions("main", staging, self.keys, self.form[1], "counts")
        report = resolve(self.table._load(), choices, between)
        assert not left
        return report

    def require_resolved(self, staging: str | None = STAGING, target: str = "main") -> None:
        """Require a branch without equality deletes, with one vector for a data file at most."""
        found = self.sql(
            "SELECT content, file_format, referenced_data_file, record_count"
            f" FROM {{t}}.files VERSION AS OF '{target}'"
        )
        assert not [each for each in found if each[0] == 2]
        referenced = [each[2] for each in found if each[0] == 1 and each[2] is not None]
        assert len(referenced) == len(set(referenced))
        assert self.table.resolve(self.keys, staging=staging, target=target).snapshot_id is None
        if self.form[0] == 3 and target == "main":
            column = self.columns[0]
            found = self.sql(f"SELECT {column} FROM {{t}}")
            read = by_pyiceberg(self.spark, self.name, column)
            assert sorted(map(repr, read)) == sorted(repr(value) for (value,) in found)
