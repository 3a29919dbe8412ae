"""Expressions of Spark as trees: what is folded, what is flat, and what is left alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.spark import jvm
from delvec.spark.catalyst import Expression, name_of, read, rebuild, sql_of

pytestmark = pytest.mark.spark

COLUMNS = "i INT, s STRING, day DATE, dec DECIMAL(5, 2), n STRUCT<a: INT, b: STRING>"


def tree(spark: SparkSession, condition: str) -> Expression:
    rows: Any = spark.createDataFrame([], COLUMNS).where(condition)
    return read(spark, rows._jdf.queryExecution().analyzed().condition())


def kinds(node: Expression) -> list[str]:
    return [node.kind, *(kind for child in node.children for kind in kinds(child))]


def test_chains_are_flat_however_long_they_are(spark: SparkSession) -> None:
    found = tree(spark, "i = 1 AND (i = 2 OR i = 3 OR (i = 4 OR i = 5)) AND (i = 6 AND i = 7)")
    assert (found.kind, len(found.children)) == ("And", 4)
    assert (found.children[1].kind, len(found.children[1].children)) == ("Or", 4)
    many = tree(spark, " OR ".join(f"i = {number}" for number in range(1000)))
    assert [each.children[1].value for each in many.children] == list(range(1000))


@pytest.mark.parametrize(
    ("constant", "kind", "value"),
    [
        ("2 + 3", "int", 5),
        ("CAST(NULL AS INT)", "int", None),
        ("'a' || 'b'", "string", "ab"),
        ("DATE'1970-01-05'", "date", 4),
        ("CAST(1.5 AS DECIMAL(5, 2))", "decimal(5,2)", Decimal("1.50")),
        ("X'0102'", "binary", b"\x01\x02"),
        ("CAST(0.1 AS FLOAT)", "float", 0.10000000149011612),
        ("TIMESTAMP'1970-01-01 00:00:01Z'", "timestamp", 1_000_000),
        ("named_struct('a', 1, 'b', NULL)", "struct<a:int,b:void>", (1, None)),
    ],
)
def test_constants_are_folded(spark: SparkSession, constant: str, kind: str, value: object) -> None:
    rows: Any = spark.range(1).selectExpr(f"{constant} AS c")
    [alias] = jvm.items(rows._jdf.queryExecution().analyzed().projectList())
    found = read(spark, alias.child())
    assert (found.kind, found.type, found.value) == ("Literal", kind, value)


def test_what_is_no_constant_is_left_to_the_query(spark: SparkSession) -> None:
    for later in ("current_date()", "CAST(current_timestamp() AS DATE)"):
        assert tree(spark, f"day < {later}").children[1].kind != "Literal"
    failing = tree(spark, "i > CAST('x' AS INT)")
    assert kinds(failing) == ["GreaterThan", "AttributeReference", "Opaque"]
    assert tree(spark, "array(1) = array(i)").children[0].kind == "Opaque"
    deep = kinds(tree(spark, f"i{' + i' * 400} = 1"))
    assert "Opaque" in deep
    assert len(deep) < 500


def test_lists(spark: SparkSession) -> None:
    found = tree(spark, "i IN (3, NULL, 1 + 1)")
    assert (found.kind, found.value, len(found.children)) == ("In", [3, None, 2], 1)
    open_one = tree(spark, "i IN (1, length(s))")
    assert (open_one.value, open_one.children[1].kind) == (None, "Length")
    pairs = tree(spark, "(i, s) IN ((1, 'a'), (2, 'b'))")
    assert pairs.value == [(1, "a"), (2, "b")]


def test_columns_have_names_and_ids(spark: SparkSession) -> None:
    field, literal = tree(spark, "n.A = 1").children
    assert (field.kind, field.name, field.type) == ("GetStructField", "a", "int")
    assert [each.name for each in field.children] == ["n"]
    assert field.children[0].value > 0
    assert literal.value == 1


def test_expressions_without_types_are_read_rebuilt_and_shown(spark: SparkSession) -> None:
    parser = jvm.session_of(spark).sessionState().sqlParser()
    parsed = parser.parseExpression("o.id = 1 AND length(o.name) > 2")
    found = read(spark, parsed)
    assert found.type is None
    assert found.children[0].children[0].kind == "UnresolvedAttribute"
    assert sql_of(spark, parsed, found.children[0]) == "(o.id = 1)"

    def replace(kind: str, node: Any, _: object) -> Any:  # noqa: ANN401
        is_name = kind == "UnresolvedAttribute"
        return name_of(spark, [node.nameParts().last()]) if is_name else None

    rebuilt = rebuild(spark, parsed, replace)
    assert rebuilt is not None
    assert rebuilt.sql() == "((id = 1) AND (length(name) > 2))"
    assert rebuild(spark, parser.parseExpression("1 + 1"), replace) is None
