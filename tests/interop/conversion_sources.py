"""Delta tables that live: random changes of rows, files and columns, the same for the same seed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from delvec import DeltaTable
from tests.delta import log_files
from tests.interop.expressions import DAYS, NAMES, PARTS, STAMPS, literal
from tests.interop.plans import ENGINES, Engine
from tests.spark.delta import spark_tables

LOG = logging.getLogger(__name__)
LOG.setLevel("INFO")
COLUMNS = (
    "id BIGINT NOT NULL, part STRING, day DATE, name STRING, amount DECIMAL(12, 2),"
    " stamp TIMESTAMP, clock TIMESTAMP_NTZ, ratio DOUBLE, speed FLOAT, flag BOOLEAN, raw BINARY,"
    " small SMALLINT, count INT, place STRUCT<x: INT, label: STRING>,"
    " points ARRAY<STRUCT<x: INT, label: STRING>>"
)
# With column mapping delta-spark gives these no field ids inside: files have to be copied then.
LISTS = ", words ARRAY<STRING>, sizes MAP<STRING, BIGINT>"
WIDENINGS = {
    "small": ("INT", "BIGINT"),
    "count": ("BIGINT",),
    "place.x": ("BIGINT",),
    "amount": ("DECIMAL(16, 2)", "DECIMAL(20, 2)"),
    "speed": ("DOUBLE",),
}
ROWS = ("append", "delete", "update", "merge")
FILES = ("optimize", "restore", "purge", "checkpoint")
COLUMN_CHANGES = ("add", "add inside", "add in array", "widen")
MAPPED_CHANGES = ("rename", "rename inside", "drop", "drop inside")


@dataclass(frozen=True)
class Kind:
    """What sort of table."""

    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    copied: bool = False

    @property
    def mapped(self) -> bool:
        return "delta.columnMapping.mode" in self.properties


WIDENING = {"delta.enableTypeWidening": "true"}
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
}
KINDS = {
    "plain": Kind((), WIDENING),
    "partitioned": Kind(("part",), WIDENING),
    "mapped by name": Kind(("day",), {"delta.columnMapping.mode": "name"} | WIDENING),
    "mapped by id": Kind((), {"delta.columnMapping.mode": "id"}),
    "copied": Kind(("flag",), {"delta.columnMapping.mode": "name"}, copied=True),
    "tracked": Kind(("day",), TRACKED | WIDENING),
}


def life(rng: Random, kind: Kind, count: int) -> list[str]:
    """Choose changes: first rows, then half of them to rows, the others to files and columns."""
    columns = COLUMN_CHANGES + (MAPPED_CHANGES if kind.mapped else ())
    others = [*FILES, *columns]
    rng.shuffle(others)
    chosen = [
        rng.choice(ROWS) if number % 2 == 0 else others[number // 2 % len(others)]
        for number in range(count - 2)
    ]
    return ["append", "delete", *chosen]


@dataclass
class Source:
    """A Delta table and who changes it."""

    spark: SparkSession
    path: Path
    kind: Kind
    rng: Random
    added: int = 0
    widened: dict[str, int] = field(default_factory=dict)
    oldest: int = 1  # what a restore may go back to: Iceberg never makes a type narrower
    done: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, spark: SparkSession, path: Path, kind: Kind, seed: str) -> Source:
        columns = COLUMNS if kind.mapped and not kind.copied else COLUMNS + LISTS
        spark_tables.create(
            spark, path, columns, partitioned_by=kind.partitioned_by, properties=kind.properties
        )
        return cls(spark, path, kind, Random(seed))

    @property
    def version(self) -> int:
        return log_files.newest_version(self.path)

    @property
    def schema(self) -> StructType:
        return spark_tables.as_delta_spark_reads(self.spark, self.path).schema

    def change(self, name: str) -> None:
        """Change the table in some way, by one of the engines if both can."""
        before, engine = self.version, self.rng.choice(ENGINES)
        changes: dict[str, Callable[[], str | None]] = {
            "append": lambda: self._append(engine),
            "delete": lambda: self._delete(engine),
            "update": lambda: self._update(engine),
            "merge": lambda: self._merge(engine),
            "optimize": lambda: self._sql("OPTIMIZE {T}"),
            "purge": lambda: self._sql("REORG TABLE {T} APPLY (PURGE)"),
            "restore": self._restore,
            "checkpoint": self._checkpoint,
            "add": self._add,
            "add inside": lambda: self._add("place."),
            "add in array": lambda: self._add("points.element."),
            "widen": self._widen,
            "rename": self._rename,
            "rename inside": lambda: self._rename("place"),
            "drop": self._drop,
            "drop inside": lambda: self._drop("place"),
        }
        what = changes[name]()
        text = f"{name}: {what}" if what else f"{name}: nothing to do"
        self.done.append(f"{before} -> {self.version} {text}")
        LOG.info("version %d: %s", self.version, text)

    def _sql(self, statement: str) -> str:
        spark_tables.sql(self.spark, self.path, statement)
        return statement

    def _rows(self, ids: Sequence[int], files: int = 1) -> DataFrame:
        frame = self.spark.createDataFrame([(each,) for each in ids], "id BIGINT")
        return frame.selectExpr(*values(self.schema, self.rng.randrange(10**6))).repartition(files)

    def _condition(self, prefix: str = "") -> str:
        """Take every second condition by id, so that a part of most files is hit."""
        simple = dict(leaves(self.schema))
        name = "id" if self.rng.randrange(2) else self.rng.choice(list(simple))
        return condition(self.rng, name, simple[name], prefix)

    def _append(self, engine: Engine) -> str:
        ids = self.rng.choices(range(120), k=self.rng.randrange(40, 80))
        rows = self._rows(ids, self.rng.randrange(1, 3))
        if engine == "delvec":
            DeltaTable.for_path(self.spark, self.path).append(rows)
        else:
            rows.write.format("delta").mode("append").save(str(self.path))
        return f"{len(ids)} rows by {engine}"

    def _delete(self, engine: Engine) -> str:
        where = self._condition()
        if engine == "delvec":
            DeltaTable.for_path(self.spark, self.path).delete(where)
        else:
            self._sql(f"DELETE FROM {{T}} WHERE {where}")
        return f"where {where} by {engine}"

    def _update(self, engine: Engine) -> str:
        chosen = self.rng.sample([each for each in self.schema if each.name != "id"], 2)
        salt, where = self.rng.randrange(10**6), self._condition()
        new = {each.name: value(each.name, each.dataType, salt) for each in chosen}
        if engine == "delvec":
            DeltaTable.for_path(self.spark, self.path).update(new, where)
        else:
            listed = ", ".join(f"{name} = {text}" for name, text in new.items())
            self._sql(f"UPDATE {{T}} SET {listed} WHERE {where}")
        return f"{', '.join(new)} where {where} by {engine}"

    def _merge(self, engine: Engine) -> str:
        rows = self._rows(self.rng.sample(range(160), 40))
        where = self._condition("t.")
        if engine == "delvec":
            merge: Any = DeltaTable.for_path(self.spark, self.path).merge(rows, "t.id = s.id")
            merge = merge.when_matched_delete(condition=where).when_matched_update_all()
            merge.when_not_matched_insert_all().execute()
        else:
            rows.createOrReplaceTempView("merged")
            self._sql(
                f"MERGE INTO {{T}} t USING merged s ON t.id = s.id WHEN MATCHED AND ({where})"
                " THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        return f"deletes where {where} by {engine}"

    def _restore(self) -> str | None:
        if self.oldest >= self.version:
            return None
        return self._sql(
            f"RESTORE {{T}} TO VERSION AS OF {self.rng.randrange(self.oldest, self.version)}"
        )

    def _checkpoint(self) -> str:
        DeltaTable.for_path(self.spark, self.path).checkpoint()
        return "by delvec"

    def _add(self, above: str = "") -> str | None:
        self.added += 1
        kind = self.rng.choice(("INT", "STRING", "DATE", "DOUBLE"))
        top = above.split(".", maxsplit=1)[0]
        if top and top not in self.schema.names:
            return None
        return self._sql(f"ALTER TABLE {{T}} ADD COLUMNS ({above}more{self.added} {kind})")

    def _widen(self) -> str | None:
        if "delta.enableTypeWidening" not in self.kind.properties:
            return None
        there = {name for name, _ in leaves(self.schema)}
        free = [
            (name, kinds[self.widened.get(name, 0)])
            for name, kinds in WIDENINGS.items()
            if name in there and self.widened.get(name, 0) < len(kinds)
        ]
        if not free:
            return None
        name, kind = self.rng.choice(free)
        self.widened[name] = self.widened.get(name, 0) + 1
        done = self._sql(f"ALTER TABLE {{T}} ALTER COLUMN {name} TYPE {kind}")
        self.oldest = self.version
        return done

    def _changeable(self, inside: str) -> list[str]:
        """List columns that may go: a struct keeps one, the table those that others count on."""
        schema: Any = self.schema
        if not inside:
            kept = {"id", "place", "points", "part", "day", *self.kind.partitioned_by}
            return [name for name in schema.names if name not in kept]
        fields = schema[inside].dataType.names
        return [f"{inside}.{name}" for name in fields] if len(fields) > 1 else []

    def _rename(self, inside: str = "") -> str | None:
        free = self._changeable(inside)
        if not free:
            return None
        self.added += 1
        return self._sql(
            f"ALTER TABLE {{T}} RENAME COLUMN {self.rng.choice(free)} TO other{self.added}"
        )

    def _drop(self, inside: str = "") -> str | None:
        free = self._changeable(inside)
        return self._sql(f"ALTER TABLE {{T}} DROP COLUMN {self.rng.choice(free)}") if free else None


WHOLE = ["0", "-1", "7", "100", "NULL"]
LITERALS: dict[str, list[str]] = {
    "tinyint": WHOLE,
    "smallint": [*WHOLE, "-32768"],
    "int": [*WHOLE, "2147483647"],
    "bigint": [*WHOLE, "2147483648", "-9223372036854775808"],
    "float": ["0.5", "-0.0", "float('NaN')", "float('-Infinity')", "NULL"],
    "double": ["0.1D", "-0.0D", "double('NaN')", "double('Infinity')", "-2.5D", "NULL"],
    "boolean": ["true", "false", "NULL"],
    "binary": ["X''", "X'00FF'", "X'61'", "NULL"],
    "string": [literal(name).sql for name in NAMES],
    "date": [literal(day).sql for day in (*DAYS, date(1, 1, 1), date(9999, 12, 31))],
    "timestamp": [literal(stamp).sql for stamp in STAMPS],
    "timestamp_ntz": [
        *(f"TIMESTAMP_NTZ'{stamp:%Y-%m-%d %H:%M:%S.%f}'" for stamp in STAMPS if stamp),
        "NULL",
    ],
}
# Texts of the partition column are made of what paths have to escape.
BY_NAME = {"part": [literal(part).sql for part in PARTS], "day": [literal(day).sql for day in DAYS]}
DECIMALS = (Decimal("-5.25"), Decimal(0), Decimal("99999.99"), None)
SIGNS = ("=", "<", ">=", "<>")


def _literals(name: str, kind: DataType) -> list[str]:
    if name in BY_NAME:
        return BY_NAME[name]
    if isinstance(kind, DecimalType):
        return [literal(number).sql for number in DECIMALS]
    return LITERALS[kind.simpleString()]


def value(name: str, kind: DataType, salt: int) -> str:
    """Make an expression of `id` that has every value of a type, null too."""
    draw = f"pmod(xxhash64(id, {salt}), {{}})"
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"'{each.name}', {value(each.name, each.dataType, salt + number + 1)}"
            for number, each in enumerate(kind.fields)
        )
        made = f"if({draw.format(6)} = 0, NULL, named_struct({fields}))"
    elif isinstance(kind, ArrayType):
        one, two = (value("", kind.elementType, salt + n) for n in (1, 2))
        made = (
            f"CASE {draw.format(5)} WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array({one}, {two})"
            " END"
        )
    elif isinstance(kind, MapType):
        one = value("", kind.valueType, salt + 1)
        made = f"CASE {draw.format(5)} WHEN 0 THEN NULL WHEN 1 THEN map() ELSE map('k', {one}) END"
    else:
        options = _literals(name, kind)
        made = f"element_at(array({', '.join(options)}), int({draw.format(len(options))}) + 1)"
    return f"CAST({made} AS {kind.simpleString()})"


def values(schema: StructType, salt: int) -> list[str]:
    """Make an expression for each column, all of `id`."""
    return [
        "id"
        if each.name == "id"
        else f"{value(each.name, each.dataType, salt + 100 * n)} AS {each.name}"
        for n, each in enumerate(schema.fields)
    ]


def leaves(schema: StructType, above: str = "") -> Iterator[tuple[str, DataType]]:
    """Give the simple columns, those in structs too."""
    for each in schema.fields:
        if isinstance(each.dataType, StructType):
            yield from leaves(each.dataType, f"{above}{each.name}.")
        elif not isinstance(each.dataType, ArrayType | MapType):
            yield above + each.name, each.dataType


def condition(rng: Random, name: str, kind: DataType, prefix: str = "") -> str:
    """Make a condition on a column."""
    column, shape = prefix + name, rng.randrange(5)
    if name == "id":
        low = rng.randrange(90)
        return [
            f"{column} % {rng.randrange(2, 5)} = 1",
            f"{column} BETWEEN {low} AND {low + rng.randrange(5, 30)}",
        ][shape % 2]
    known = [each for each in _literals(name.rsplit(".", maxsplit=1)[-1], kind) if each != "NULL"]
    if shape == 0:
        return f"{column} IS NULL"
    if shape == 1:
        return f"{column} IN ({', '.join(rng.sample(known, 2))}) OR {column} IS NULL"
    return f"{column} {rng.choice(SIGNS)} {rng.choice(known)}"


def questions(rng: Random, schema: StructType, count: int) -> list[str]:
    """Ask for some rows by each kind of condition, and for the extremes of columns.

    Engines answer these by what they know of files: skipping them, or not reading at all.
    """
    simple = list(leaves(schema))
    hashed = ", ".join(f"isnull({name}), {name}" for name, _ in simple)
    sums = f"count(*) AS n, string(sum(CAST(xxhash64({hashed}) AS DECIMAL(20, 0)))) AS a"
    asked = [
        f"SELECT {sums}, '' AS b FROM {{T}} WHERE {where}"
        for where in _conditions(rng, simple, count)
    ]
    extremes = [name for name, kind in simple if not isinstance(kind, BinaryType)]
    for name in rng.sample(extremes, min(len(extremes), 6)):
        text = "string({})"
        asked.append(
            f"SELECT count({name}) AS n, {text.format(f'min({name})')} AS a,"
            f" {text.format(f'max({name})')} AS b FROM {{T}}"
        )
    return [*asked, "SELECT count(*) AS n, '' AS a, '' AS b FROM {T}"]


def _conditions(rng: Random, simple: Sequence[tuple[str, DataType]], count: int) -> Iterator[str]:
    for name, kind in rng.sample(simple, min(count, len(simple))):
        yield condition(rng, name, kind)
        yield f"{name} IS NULL" if rng.randrange(2) else f"{name} IS NOT NULL"
    (one, its), (two, other) = rng.sample(simple, 2)
    yield f"({condition(rng, one, its)}) AND NOT ({condition(rng, two, other)})"
    texts = [name for name, kind in simple if isinstance(kind, StringType)]
    yield f"startswith({rng.choice(texts)}, '{rng.choice(['a', 'Ä', '', 'smile'])}')"
    numbers = [name for name, kind in simple if isinstance(kind, NumericType)]
    yield f"{rng.choice(numbers)} NOT IN (0, 7)"


def every_answer(rows: DataFrame, asked: Sequence[str]) -> list[Any]:
    """Answer all questions in one job, each by a scan of its own."""
    if not asked:
        return []
    rows.createOrReplaceTempView("asked_about")
    union = " UNION ALL ".join(
        f"SELECT {number} AS number, * FROM ({text.replace('{T}', 'asked_about')})"
        for number, text in enumerate(asked)
    )
    answers = rows.sparkSession.sql(union).collect()
    return [tuple(row) for row in sorted(answers, key=lambda row: row["number"])]
