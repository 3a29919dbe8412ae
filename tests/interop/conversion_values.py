"""Values, conditions and questions for columns of any type, as SQL: what a schema has decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from pyspark.sql import DataFrame
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

from tests.interop.expressions import DAYS, NAMES, PARTS, STAMPS, literal

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
