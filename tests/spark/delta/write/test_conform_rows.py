"""Rows on their way into a table: what does not fit is refused, and its rules hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType as SparkStruct

from delvec.delta.schema.metadata import Metadata
from delvec.errors import ConstraintError, InvalidArgumentError
from delvec.spark.delta.write.conform_rows import check_constraints, conform
from delvec.spark.failures import translate_errors
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark


def table(
    ddl: str, properties: Mapping[str, str] | None = None, last: Mapping[str, Any] | None = None
) -> Metadata:
    """Give the metadata of a table, and what its last column carries."""
    schema = json.loads(SparkStruct.fromDDL(ddl).json())
    schema["fields"][-1]["metadata"] |= last or {}
    return Metadata.from_json({"schemaString": json.dumps(schema), "configuration": properties})


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    with translate_errors("lake/t"):
        return [tuple(row) for row in df.collect()]


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with settings_of(spark, {"spark.sql.ansi.enabled": request.param}):
        yield spark


FIT = r"column v\S* does not fit into .* v\S* = "
STORED = r"column v\S* is .* cannot be stored"
MEANT = (
    r"has no column amuont(?s:.*)did you mean amount\? If not, merge_schema=True adds new columns"
)


@pytest.mark.parametrize(
    ("have", "wanted", "message"),
    [
        ("cast(3000000000 as bigint) v", "v int", FIT),
        ("double('NaN') v", "v int", FIT),
        ("123.45BD v", "v decimal(4,2)", FIT),
        ("'2026-02-30' v", "v date", FIT),
        ("'bad' v", "v timestamp", FIT),
        ("'bad' v", "v timestamp_ntz", FIT),
        ("'bad' v", "v boolean", FIT),
        ("array('x') v", "v array<int>", FIT),
        ("named_struct('x', 'y') v", "v struct<x:int>", FIT),
        ("map('a', 'b') v", "v map<string,int>", FIT),
        ("1 v", "v date", STORED),
        ("array(1) v", "v array<date>", STORED),
        ("1 v", "v struct<x:int>", STORED),
        ("1 amuont", "amount int", MEANT),
        ("named_struct('x', 1, 'y', 2) s", "s struct<x:int>", "s has no column y, only x"),
    ],
)
def test_other_rows_are_refused(
    session: SparkSession, have: str, wanted: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        rows(conform(session, "t", table(wanted), session.sql(f"select {have}")))


class Rule(NamedTuple):
    """Columns, a row that breaks the rule, one that keeps it, and where the rule stands."""

    columns: str
    bad: str
    good: str
    check: str | None = None
    last: Mapping[str, Any] | None = None


def varchar(kind: str) -> dict[str, str]:
    return {"__CHAR_VARCHAR_TYPE_STRING": kind}


INVARIANT = {"delta.invariants": '{"expression":{"expression":"a < 5"}}'}
MAP = "map<string,struct<x:varchar(1)>>"
RULES = {
    "NOT NULL a": Rule("a int not null", "int(null) as a", "1 as a"),
    "NOT NULL s.f": Rule(
        "s struct<f:int not null>", "named_struct('f', int(null)) as s", "named_struct('f', 1) as s"
    ),
    "positive": Rule(
        "a int, `b c` int", "1 a, -1 `b c`", "1 a, 2 `b c`", check="a > 0 and `b c` > 0"
    ),
    "unknown": Rule("a int", "int(null) as a", "1 as a", check="a > 0"),
    "a": Rule("a int", "5 as a", "4 as a", last=INVARIANT),
    "generated column g": Rule(
        "a int, g int", "1 a, 1 g", "1 a, 2 g", last={"delta.generationExpression": "a + 1"}
    ),
    "varchar(3) v": Rule("v string", "'abcd' as v", "'äbc' as v", last=varchar("varchar(3)")),
    "array<char(2)> v": Rule(
        "v array<string>",
        "array('ab', 'abc') v",
        "array('ab', null) v",
        last=varchar("array<char(2)>"),
    ),
    f"{MAP} v": Rule(
        "v map<string,struct<x:string>>",
        "map('k', named_struct('x', 'ab')) as v",
        "map('key', named_struct('x', 'a')) as v",
        last=varchar(MAP),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_row_that_breaks_a_rule_fails_the_job(session: SparkSession, name: str) -> None:
    rule = RULES[name]
    checks = {} if rule.check is None else {f"delta.constraints.{name}": rule.check}
    meta = table(rule.columns, checks, rule.last)
    both = session.sql(f"select {rule.good} union all select {rule.bad}")
    with pytest.raises(ConstraintError, match="found a row with ") as failure:
        rows(check_constraints(session, "lake/t", meta, both))
    assert (failure.value.constraint, failure.value.table) == (name, "lake/t")
    fine = session.sql(f"select {rule.good}")
    assert rows(check_constraints(session, "t", meta, fine)) == rows(fine)


def test_items_of_arrays_and_maps_are_checked_as_the_schema_says(spark: SparkSession) -> None:
    inner = SparkStruct().add("x", "integer", nullable=False)
    array = spark_types.ArrayType(spark_types.IntegerType(), containsNull=False)
    structs = spark_types.ArrayType(inner)
    mapped = spark_types.MapType(spark_types.StringType(), structs, valueContainsNull=False)
    for kind, bad, good in (
        (array, "array(1, int(null))", "array(1)"),
        (structs, "array(named_struct('x', int(null)))", "array(named_struct('x', 1), null)"),
        (mapped, "map('a', null)", "map('a', array(null))"),
        (mapped, "map('a', array(named_struct('x', int(null))))", "null"),
    ):
        meta = Metadata.from_json({"schemaString": SparkStruct().add("v", kind).json()})
        broken, fine = (
            check_constraints(
                spark, "t", meta, conform(spark, "t", meta, spark.sql(f"select {each} as v"))
            )
            for each in (bad, good)
        )
        with pytest.raises(ConstraintError, match="column v takes no NULL"):
            rows(broken)
        assert len(rows(fine)) == 1


def test_rows_that_fit_and_tables_without_rules_cost_nothing(spark: SparkSession) -> None:
    meta, df = table("id bigint"), spark.range(3)
    assert conform(spark, "t", meta, df) is check_constraints(spark, "t", meta, df) is df


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["stages", "no stages", "interpreted"])
def test_only_written_rows_are_checked(spark: SparkSession, mode: str, tmp_path: Path) -> None:
    meta = table("a bigint, b bigint", {"delta.constraints.c": "a > 0 and b > 0"})
    stored = str(tmp_path / "left")
    spark.range(6).selectExpr("id - 3 as a", "if(id > 3, id, null) as k").write.parquet(stored)
    left = spark.read.parquet(stored)
    right = spark.range(2, 9).selectExpr("id as k", "id - 4 as b")
    codegen = {
        "spark.sql.codegen.wholeStage": str(mode == "stages").lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if mode == "interpreted" else "FALLBACK",
    }
    with settings_of(spark, codegen):
        joined = left.join(right, "k").where("b > 0").select("a", "b")
        assert rows(check_constraints(spark, "t", meta, joined)) == [(2, 1)]
        # The filter is NULL for the rows that break the rule.
        filtered = left.where("k > 3 or k < 0").selectExpr("a", "1L as b")
        assert sorted(rows(check_constraints(spark, "t", meta, filtered))) == [(1, 1), (2, 1)]
        outer = right.join(left, "k", "left").where("b > 0").select("a", "b")
        with pytest.raises(ConstraintError, match="found a row with a = NULL, b ="):
            rows(check_constraints(spark, "t", meta, outer))


def test_a_rule_on_a_column_that_is_gone_is_told(spark: SparkSession) -> None:
    meta = table("a int", {"delta.constraints.c": "gone > 0"})
    with pytest.raises(InvalidArgumentError, match="gone"):
        check_constraints(spark, "t", meta, spark.sql("select 1 as a"))
