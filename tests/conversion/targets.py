"""Targets of conversions, as Iceberg itself reads them, and failures at calls that change them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder
from py4j.java_gateway import JavaMember
from pyspark.sql import SparkSession

import delvec
from delvec.conversion.apply import ConversionReport
from delvec.conversion.clean_target import CleanReport
from delvec.conversion.plan import ConversionPlan
from delvec.iceberg.client.catalog import LoadedTable, find_table, table_name
from delvec.iceberg.client.metadata import TableMetadata
from delvec.storage import Storage
from tests.delta.builder import TableBuilder

Act = Callable[[Callable[[], Any]], Any]
State = tuple[int | None, tuple[int, ...]] | None


def ids(spark: SparkSession, name: str, at: str = "") -> list[int]:
    """Read the column `id` by Iceberg, in order; of a branch, a tag or a snapshot if asked."""
    spark.catalog.refreshTable(name)
    found = spark.sql(f"SELECT id FROM {name} {at and f'VERSION AS OF {at}'}").collect()
    return sorted(row[0] for row in found)


def ids_in_delta(path: Path, version: int) -> list[int]:
    """Read the column `id` of a version of the source, in order, by an engine without a JVM."""
    table = RustTable(str(path), version=version)
    rows = QueryBuilder().register("source", table).execute("SELECT id FROM source")
    return sorted(pa.table(rows.read_all())["id"].to_pylist())


def branches(spark: SparkSession, name: str) -> set[str]:
    """Name the branches and tags of a table."""
    return {row[0] for row in spark.sql(f"SELECT name FROM {name}.refs").collect()}


@dataclass(frozen=True)
class Pair:
    """A source, its live files, and the target that follows it."""

    spark: SparkSession
    source: TableBuilder
    live: list[dict[str, Any]]
    target: str

    def convert(self, **choices: Any) -> ConversionReport:  # noqa: ANN401
        return delvec.convert(self.spark, self.source.root, self.target, **choices)

    def plan(self, **choices: Any) -> ConversionPlan:  # noqa: ANN401
        return delvec.plan_conversion(self.spark, self.source.root, self.target, **choices)

    def clean(self, **choices: Any) -> CleanReport:  # noqa: ANN401
        return delvec.clean_target(self.spark, self.target, **choices)

    def delete(self, number: int, positions: Iterable[int]) -> None:
        """Commit a vector of a live file to the source."""
        [vector] = self.source.write_vectors(positions)
        self.live[number] = self.source.delete(self.live[number], vector)

    def sql(self, *statements: str) -> None:
        """Let others change the target {t}, which procedures call {n}."""
        name = self.target.partition(".")[2]
        for each in statements:
            self.spark.sql(each.replace("{t}", self.target).replace("{n}", name)).collect()

    def ids(self, at: str = "") -> list[int]:
        return ids(self.spark, self.target, at)

    def in_delta(self, version: int | None = None) -> list[int]:
        newest = self.source.version if version is None else version
        return ids_in_delta(self.source.root, newest)

    def refs(self) -> set[str]:
        return branches(self.spark, self.target)

    def table(self) -> LoadedTable | None:
        return find_table(self.spark, table_name(self.spark, self.target))

    def loaded(self) -> LoadedTable:
        table = self.table()
        assert table is not None
        return table

    def metadata(self) -> TableMetadata:
        return self.loaded().metadata

    def state(self) -> State:
        """Tell what readers see: the snapshot of `main` and the rows; None if there is no table."""
        table = self.table()
        if table is None:
            return None
        head = table.metadata.head()
        return (head.id if head else None), tuple(self.ids())

    def delete_paths(self, column: str = "file_path") -> list[str]:
        """Name the delete files that the newest snapshot lists, or the data file of each."""
        self.spark.catalog.refreshTable(self.target)
        found = self.spark.sql(f"SELECT {column} FROM {self.target}.delete_files").collect()
        return [row[0] for row in found]

    def files(self) -> set[str]:
        """Name the files in the target's location that are not Iceberg's own metadata."""
        return {
            file.key
            for file in Storage.open(self.metadata().location).list(recursive=True)
            if not file.key.startswith("metadata/") and not file.key.endswith(".crc")
        }


class Killed(BaseException):
    """A process that died, as nearly as one that goes on can tell."""


@dataclass
class Calls:
    """The calls that changed a store or a catalog, by name, in order."""

    at: dict[int, Act]
    names: list[str] = field(default_factory=list)
    is_dead: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def done(self, name: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        with self._lock:
            if self.is_dead:
                raise Killed
            number = len(self.names)
            self.names.append(name)
        return self.at[number](call) if number in self.at else call()

    def kill(self, number: int, when: str) -> None:
        """Let nothing happen any more before or after a call, not even tidying up."""

        def act(call: Callable[[], Any]) -> None:
            if when == "after":
                call()
            self.is_dead = True
            raise Killed

        self.at[number] = act


@contextmanager
def numbered(
    at: Mapping[int, Act] | None = None, *, kill: tuple[int, str] | None = None
) -> Iterator[Calls]:
    """Number the calls that change what others see: puts and deletes, commits, drops of tables.

    Commits are those of Iceberg's catalogs, not what transactions do within themselves.

    Args:
        at: What is done at a call, by its number from 0 on; it gets the call and gives its result.
        kill: The number of a call, and whether nothing happens any more `before` or `after` it.
    """
    calls = Calls(dict(at or {}))
    if kill is not None:
        calls.kill(*kill)
    real = JavaMember.__call__

    def called(member: Any, *arguments: Any) -> Any:  # noqa: ANN401
        outer = member.name == "dropTable" or (
            member.name == "commit"
            and len(arguments) == 2
            and "BaseTransaction" not in member.container.getClass().getName()
        )
        if not outer:
            return real(member, *arguments)
        return calls.done(member.name, lambda: real(member, *arguments))

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(Storage, name)

        @wraps(function)
        def stored(*arguments: Any) -> Any:  # noqa: ANN401
            return calls.done(name, lambda: function(*arguments))

        return stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JavaMember, "__call__", called)
        for name in ("write", "write_if_absent", "delete", "delete_folder"):
            patch.setattr(Storage, name, counted(name))
        yield calls


def before(act: Callable[[], object]) -> Act:
    """Do something before a call."""

    def done(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        act()
        return call()

    return done
