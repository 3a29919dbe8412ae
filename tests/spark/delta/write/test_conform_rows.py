"""Rows on their way into a table: its columns and types, its rules, and how failures read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType as SparkStruct

from delvec.delta.schema.metadata import Metadata
from delvec.errors import (
    ConstraintError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.spark.delta.write.conform_rows import add_generated_columns, check_constraints, conform
from delvec.spark.failures import translate_errors
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


def table(
    ddl: str, properties: Mapping[str, str] | None = None, **metadata: Mapping[str, Any]
) -> Metadata:
    """Give the metadata of a table; keywords are what its columns carry."""
    schema = json.loads(SparkStruct.fromDDL(ddl).json())
    for field in schema["fields"]:
        field["metadata"] |= metadata.get(field["name"], {})
    return Metadata.from_json({"schemaString": json.dumps(schema), "configuration": properties})


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    with translate_errors("t"):
        return [tuple(row) for row in df.collect()]


ANSI = "spark.sql.ansi.enabled"
CASES = "spark.sql.caseSensitive"


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with settings_of(spark, {ANSI: request.param}):
        yield spark


class TestConformed:
    def test_columns_come_by_name_in_the_order_and_types_of_the_table(
        self, session: SparkSession
    ) -> None:
        meta = table("id bigint, `a.b` decimal(6,2), s struct<x:bigint,y:string>, d date")
        df = session.sql(
            "select named_struct('Y', 'y', 'X', 1) as S, date'2026-01-02' as d, 7 as ID,"
            " 1.25 as `A.B`"
        )
        out = conform(session, "t", meta, df)
        assert out.schema.simpleString() == (
            "struct<id:bigint,a.b:decimal(6,2),s:struct<x:bigint,y:string>,d:date>"
        )
        [(key, amount, struct, day)] = rows(out)
        assert (key, str(amount), tuple(struct), str(day)) == (7, "1.25", (1, "y"), "2026-01-02")

    def test_nested_values_are_cast_wherever_they_are(self, session: SparkSession) -> None:
        meta = table("a array<struct<x:smallint,y:int>>, m map<string,struct<z:double>>")
        df = session.sql(
            "select array(named_struct('x', 3), null) as a, map(1, named_struct('z', 2)) as m"
            " union all select null, null"
        )
        out = [tuple(row) for row in conform(session, "t", meta, df, lacking="null").collect()]
        assert [(x, y) for x, y in [out[0][0][0]]] == [(3, None)]
        assert out[0][0][1] is None
        assert out[0][1]["1"]["z"] == 2.0
        assert out[1] == (None, None)

    def test_missing_columns_get_their_default_their_expression_or_null(
        self, session: SparkSession
    ) -> None:
        meta = table(
            "id int, twice bigint, word string, none int",
            twice={"delta.generationExpression": "id * 2"},
            word={"CURRENT_DEFAULT": "'w' || 1"},
        )
        df = session.range(2).selectExpr("cast(id as int) id")
        out = add_generated_columns(
            session, "t", meta.schema, conform(session, "t", meta, df), df.columns
        )
        assert rows(out) == [(0, 0, "w1", None), (1, 2, "w1", None)]

    def test_rows_that_fit_already_stay_as_they_are(self, spark: SparkSession) -> None:
        meta, df = table("id bigint"), spark.range(3)
        assert conform(spark, "t", meta, df) is df

    @pytest.mark.parametrize(
        ("have", "wanted"),
        [
            ("cast(3000000000 as bigint)", "int"),
            ("double('NaN')", "int"),
            ("123.45BD", "decimal(4,2)"),
            ("'2026-02-30'", "date"),
            ("array('x')", "array<int>"),
            ("named_struct('x', 'y')", "struct<x:int>"),
            ("map('a', 'b')", "map<string,int>"),
        ],
    )
    def test_values_that_do_not_fit_fail_the_job(
        self, session: SparkSession, have: str, wanted: str
    ) -> None:
        out = conform(session, "t", table(f"v {wanted}"), session.sql(f"select {have} as v"))
        with pytest.raises(InvalidArgumentError, match=r"column v\S* does not fit into .* v\S* = "):
            rows(out)

    @pytest.mark.parametrize(
        ("have", "wanted"), [("1", "date"), ("array(1)", "array<date>"), ("1", "struct<x:int>")]
    )
    def test_types_that_cannot_be_stored_are_refused_at_once(
        self, session: SparkSession, have: str, wanted: str
    ) -> None:
        df = session.sql(f"select {have} as v")
        with pytest.raises(InvalidArgumentError, match=r"column v\S* is .* cannot be stored"):
            conform(session, "t", table(f"v {wanted}"), df)

    def test_columns_that_the_table_has_not_are_refused(self, spark: SparkSession) -> None:
        meta = table("amount int, s struct<first:int>")
        with pytest.raises(InvalidArgumentError, match="has no column amuont") as failure:
            conform(spark, "t", meta, spark.sql("select 1 as amuont"))
        assert failure.value.hint == (
            "did you mean amount? If not, merge_schema=True adds new columns"
        )
        with pytest.raises(InvalidArgumentError, match="s has no column last, only first"):
            conform(spark, "t", meta, spark.sql("select named_struct('first', 1, 'last', 2) as s"))
        with (
            settings_of(spark, {CASES: "true"}),
            pytest.raises(InvalidArgumentError, match="more than"),
        ):
            conform(spark, "t", meta, spark.sql("select 1 as amount, 2 as AMOUNT"))


RULES = {
    "NOT NULL a": (partial(table, "a int not null"), "cast(null as int) as a", "1 as a"),
    "NOT NULL s.f": (
        partial(table, "s struct<f:int not null>"),
        "named_struct('f', cast(null as int)) as s",
        "named_struct('f', 1) as s",
    ),
    "positive": (
        partial(table, "a int, `b c` int", {"delta.constraints.positive": "a > 0 and `b c` > 0"}),
        "1 as a, -1 as `b c`",
        "1 as a, 2 as `b c`",
    ),
    "unknown": (
        partial(table, "a int", {"delta.constraints.unknown": "a > 0"}),
        "cast(null as int) as a",
        "1 as a",
    ),
    "a": (
        partial(table, "a int", a={"delta.invariants": '{"expression":{"expression":"a < 5"}}'}),
        "5 as a",
        "4 as a",
    ),
    "generated column g": (
        partial(table, "a int, g int", g={"delta.generationExpression": "a + 1"}),
        "1 as a, 1 as g",
        "1 as a, 2 as g",
    ),
    "varchar(3) v": (
        partial(table, "v string", v={VARCHAR: "varchar(3)"}),
        "'abcd' as v",
        "'äbc' as v",
    ),
    "array<char(2)> v": (
        partial(table, "v array<string>", v={VARCHAR: "array<char(2)>"}),
        "array('ab', 'abc') as v",
        "array('ab', null) as v",
    ),
    "map<string,struct<x:varchar(1)>> v": (
        partial(
            table, "v map<string,struct<x:string>>", v={VARCHAR: "map<string,struct<x:varchar(1)>>"}
        ),
        "map('k', named_struct('x', 'ab')) as v",
        "map('key', named_struct('x', 'a')) as v",
    ),
}


class TestChecked:
    @pytest.mark.parametrize("name", RULES)
    def test_a_row_that_breaks_a_rule_fails_the_job(self, session: SparkSession, name: str) -> None:
        of, bad, good = RULES[name]
        meta = of()
        both = session.sql(f"select {good} union all select {bad}")
        with pytest.raises(ConstraintError) as failure, translate_errors("lake/t"):
            check_constraints(session, "lake/t", meta, both).collect()
        assert (failure.value.constraint, failure.value.table) == (name, "lake/t")
        assert "found a row with " in str(failure.value)
        fine = session.sql(f"select {good}")
        assert rows(check_constraints(session, "t", meta, fine)) == rows(fine)

    def test_items_of_arrays_and_maps_are_checked_as_the_schema_says(
        self, spark: SparkSession
    ) -> None:
        def of(kind: spark_types.DataType) -> Metadata:
            schema = SparkStruct().add("v", kind).json()
            return Metadata.from_json({"schemaString": schema})

        inner = SparkStruct().add("x", "integer", nullable=False)
        array = spark_types.ArrayType(spark_types.IntegerType(), containsNull=False)
        structs = spark_types.ArrayType(inner)
        mapped = spark_types.MapType(spark_types.StringType(), structs, valueContainsNull=False)
        null = "cast(null as int)"
        for kind, bad, good in (
            (array, f"array(1, {null})", "array(1)"),
            (structs, f"array(named_struct('x', {null}))", "array(named_struct('x', 1), null)"),
            (mapped, "map('a', null)", "map('a', array(null))"),
            (mapped, f"map('a', array(named_struct('x', {null})))", "null"),
        ):
            meta = of(kind)
            frames = [
                conform(spark, "t", meta, spark.sql(f"select {each} as v")) for each in (bad, good)
            ]
            with pytest.raises(ConstraintError, match="column v takes no NULL"):
                rows(check_constraints(spark, "t", meta, frames[0]))
            assert len(rows(check_constraints(spark, "t", meta, frames[1]))) == 1

    def test_a_job_that_writes_fails_as_well(self, spark: SparkSession, tmp_path: Path) -> None:
        rows = check_constraints(
            spark, "t", table("id bigint", {"delta.constraints.c": "id < 2"}), spark.range(3)
        )
        text = "constraint c demands id < 2, found a row with id = 2; nothing was written to t"
        with pytest.raises(ConstraintError, match=text), translate_errors("t"):
            rows.write.parquet(str(tmp_path / "out"))

    def test_a_table_without_rules_costs_nothing(self, spark: SparkSession) -> None:
        df = spark.range(1)
        assert check_constraints(spark, "t", table("id bigint"), df) is df

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize("mode", ["stages", "no stages", "interpreted"])
    def test_rows_that_are_not_written_are_not_checked(
        self, spark: SparkSession, mode: str, tmp_path: Path
    ) -> None:
        meta = table("a bigint, b bigint", {"delta.constraints.c": "a > 0 and b > 0"})
        spark.range(6).selectExpr("id - 3 as a", "if(id > 3, id, null) as k").write.parquet(
            str(tmp_path / "left")
        )
        left = spark.read.parquet(str(tmp_path / "left"))
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

    def test_a_rule_on_a_column_that_is_gone_is_told(self, spark: SparkSession) -> None:
        meta = table("a int", {"delta.constraints.c": "gone > 0"})
        with pytest.raises(InvalidArgumentError, match="gone"):
            check_constraints(spark, "t", meta, spark.sql("select 1 as a"))


class TestExplained:
    @pytest.mark.parametrize(
        ("query", "kind", "text"),
        [
            ("select nope", InvalidArgumentError, r"^there is no column nope \(table t\)"),
            ("select 1 +", InvalidArgumentError, "PARSE_SYNTAX_ERROR"),
            ("select * from nowhere", InvalidArgumentError, "nowhere"),
            ("select cast('x' || id as int) from range(2)", InvalidArgumentError, "CAST_INVALID"),
            ("select 1 / id from range(2)", InvalidArgumentError, "DIVIDE_BY_ZERO"),
            ("select cast(id + 3000000000 as int) from range(2)", InvalidArgumentError, "OVERFLOW"),
            ("select raise_error('own') from range(2)", EngineError, "own"),
        ],
    )
    def test_queries_that_fail(
        self, spark: SparkSession, query: str, kind: type[DelvecError], text: str
    ) -> None:
        expected = pytest.raises(kind, match=text)
        with settings_of(spark, {ANSI: "true"}), expected as failure, translate_errors("t"):
            spark.sql(query).collect()
        assert "\n" not in failure.value.message
        assert "SQLSTATE" not in failure.value.message
        assert failure.value.__cause__ is not None

    def test_files_that_are_gone_and_folders_that_cannot_be_written(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        spark.range(3).write.parquet(str(tmp_path / "t"))
        df = spark.read.parquet(str(tmp_path / "t"))
        for file in (tmp_path / "t").glob("*.parquet"):
            file.unlink()
        with pytest.raises(StorageError, match=r"\.parquet") as failure, translate_errors("t"):
            df.collect()
        assert "vacuumed" in str(failure.value.hint)
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match="not a directory"), translate_errors("t"):
            spark.range(3).write.parquet(str(tmp_path / "file" / "t"))

    def test_errors_of_users_code_name_their_own_message(self, spark: SparkSession) -> None:
        @functions.udf("int", useArrow=False)
        def broken(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            raise ValueError(f"no good: {value}")

        df = spark.range(1).select(broken("id"))
        with pytest.raises(EngineError, match="ValueError: no good: 0"), translate_errors("t"):
            df.collect()

    def test_other_errors_pass_as_they_are(self) -> None:
        for error in (KeyError("x"), InvalidArgumentError("mine")):
            with pytest.raises(type(error)) as failure, translate_errors("t"):
                raise error
            assert failure.value is error
