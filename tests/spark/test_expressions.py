"""Sums of row hashes: equal for the same rows in any order, different for any others."""

from __future__ import annotations

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from delvec.spark.expressions import row_sums, sums_by_rows

pytestmark = pytest.mark.spark

# Two rows of each side, with `;` between them. Spark's own hash takes most of these for the same.
DIFFERENT: dict[str, tuple[str, str]] = {
    "nulls in other columns": ("NULL, 5; 7, NULL", "5, NULL; NULL, 7"),
    "values in other columns": ("1, 2; 3, 4", "2, 1; 4, 3"),
    "values in other rows": ("1, 2; 3, 4", "1, 4; 3, 2"),
    "each row twice": ("1; 1", "2; 2"),
    "null or zero": ("NULL; 1", "0; 1"),
    "null or false": ("NULL; true", "false; true"),
    "null or no text": ("NULL; 'a'", "''; 'a'"),
    "text in other columns": ("'ab', 'c'; '', 'd'", "'a', 'bc'; '', 'd'"),
    "null or no bytes": ("NULL; X'00'", "X''; X'00'"),
    "bytes": ("X'00'; X'0100'", "X'0000'; X'01'"),
    "null or NaN": ("NULL; 1D", "double('NaN'); 1D"),
    "a microsecond": (
        "TIMESTAMP'2024-01-01 00:00:00.000001'; NULL",
        "TIMESTAMP'2024-01-01 00:00:00.000002'; NULL",
    ),
    "decimals": ("1.50BD; NULL", "15.00BD; NULL"),
    "long decimals": ("12345678901234567890123.4BD; NULL", "12345678901234567890123.5BD; NULL"),
    "null or empty array": ("NULL; array(1)", "array(); array(1)"),
    "empty array or one of null": ("array(); array(1)", "array(NULL); array(1)"),
    "null in an array": ("array(NULL, 5); NULL", "array(5, NULL); NULL"),
    "elements in other arrays": (
        "array(1), array(2); NULL, NULL",
        "array(1, 2), array(); NULL, NULL",
    ),
    "elements in other inner arrays": (
        "array(array(1), array(2)); NULL",
        "array(array(1, 2)); NULL",
    ),
    "null in an array of arrays": (
        "array(array(1), NULL, array()); NULL",
        "array(array(1), array(), NULL); NULL",
    ),
    "null struct or one of nulls": (
        "NULL; struct(1 AS a, 2 AS b)",
        "struct(NULL AS a, NULL AS b); struct(1 AS a, 2 AS b)",
    ),
    "null in a struct": ("struct(NULL AS a, 5 AS b); NULL", "struct(5 AS a, NULL AS b); NULL"),
    "null struct in a struct": (
        "struct(NULL AS s, 1 AS b); struct(struct(1 AS a) AS s, 1 AS b)",
        "struct(struct(NULL AS a) AS s, 1 AS b); struct(struct(1 AS a) AS s, 1 AS b)",
    ),
    "null in a struct in an array": (
        "array(struct(NULL AS a, 5 AS b)); NULL",
        "array(struct(5 AS a, NULL AS b)); NULL",
    ),
    "null struct in an array": (
        "array(NULL, struct(1 AS a)); NULL",
        "array(struct(NULL AS a), struct(1 AS a)); NULL",
    ),
    "null or empty map": ("NULL; map(1, 2)", "map(); map(1, 2)"),
    "null in a map": ("map('a', NULL, 'b', 1); NULL", "map('a', 1, 'b', NULL); NULL"),
    "keys as values": ("map(1, 2); NULL", "map(2, 1); NULL"),
    "entries in other maps": (
        "map(1, 1), map(2, 2); NULL, NULL",
        "map(1, 1, 2, 2), map(); NULL, NULL",
    ),
    "arrays in a map": ("map(1, array(NULL, 2)); NULL", "map(1, array(2, NULL)); NULL"),
}
SAME: dict[str, tuple[str, str]] = {
    "rows in another order": ("NULL, 5; 7, NULL", "7, NULL; NULL, 5"),
    "entries in another order": ("map('a', 1, 'b', NULL); NULL", "map('b', NULL, 'a', 1); NULL"),
    "entries with maps": (
        "map(1, map(2, 3, 4, 5), 6, NULL); NULL",
        "map(6, NULL, 1, map(4, 5, 2, 3)); NULL",
    ),
    "zeros": ("0D, array(-0D); NULL, NULL", "-0D, array(0D); NULL, NULL"),
    "NaN": ("double('NaN'); NULL", "sqrt(-1D); NULL"),
}


@pytest.mark.slow
def test_the_same_rows_have_the_same_sums_and_others_have_others(spark: SparkSession) -> None:
    """One job: each case is a struct of its columns, each side a group of two rows."""
    cases = {**DIFFERENT, **SAME}
    rows = (
        ", ".join(
            [f"'{side}'", *(f"struct({sides[side].split('; ')[row]})" for sides in cases.values())]
        )
        for side in (0, 1)
        for row in (0, 1)
    )
    names = [f"c{number}" for number in range(len(cases))]
    frame = spark.sql(f"SELECT * FROM VALUES ({'), ('.join(rows)}) AS t(side, {', '.join(names)})")
    flat: list[Column] = []
    sums: list[Column] = []
    for name in names:
        kind = frame.schema[name].dataType
        assert isinstance(kind, StructType)
        fields = [StructField(f"{name}_{each.name}", each.dataType) for each in kind.fields]
        flat += [F.col(f"{name}.{each.name}").alias(f"{name}_{each.name}") for each in kind.fields]
        sums += sums_by_rows(StructType(fields))
    first, second = (
        tuple(row)[1:] for row in frame.select("side", *flat).groupBy("side").agg(*sums).collect()
    )
    equal = {
        name: first[4 * number : 4 * number + 4] == second[4 * number : 4 * number + 4]
        for number, name in enumerate(cases)
    }
    assert equal == {name: name in SAME for name in cases}


def test_values_are_compared_in_one_type(spark: SparkSession) -> None:
    kind = StructType([StructField("id", LongType())])
    narrow, wide = (
        spark.sql(f"SELECT {kind}(id) AS id FROM range(3)") for kind in ("int", "bigint")
    )
    assert row_sums(narrow, kind) == row_sums(wide, kind)
    assert row_sums(narrow, kind) != row_sums(wide.where("id < 2"), kind)
    assert row_sums(wide.where("id < 0"), kind) == (0, 0, 0, 0)
    assert len(sums_by_rows(kind)) == 4
