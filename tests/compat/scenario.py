"""A process of its own whose Spark has no jar of delta-spark: what a job there gets, as JSON.

    python -m tests.compat.scenario FOLDER

Each step is a function that returns what JSON has; an error is its class and its first line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.types import LongType, StringType, StructField, StructType

import delvec
from delvec.compat.delta_spark import DeltaTable, IdentityGenerator, configure_spark_with_delta_pip

Step = Callable[[], Any]
FOLDER: Final = sys.argv[-1]


def rows(df: Any) -> list[list[Any]]:  # noqa: ANN401
    return sorted([list(row) for row in df.collect()], key=str)


def told(step: Step) -> Any:  # noqa: ANN401
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return [type(error).__name__, str(error).split("\n")[0]]


def sessions(spark: SparkSession) -> dict[str, Step]:
    def threads() -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: rows(spark.sql("SELECT * FROM threads")), range(4)))

    def in_place() -> list[bool]:
        spark.range(1).createOrReplaceTempView("kept")
        again = delvec.session(iceberg=False)
        return [
            again is spark,
            SparkSession.builder.getOrCreate() is spark,
            again.catalog.tableExists("kept"),
        ]

    def fresh() -> Any:  # noqa: ANN401
        new = spark.newSession()
        new.sql("INSERT INTO threads VALUES (2)")
        return [rows(new.sql("SELECT * FROM threads")), new.catalog.tableExists("kept")]

    spark.sql("CREATE TABLE threads (id INT) USING delta")
    spark.sql("INSERT INTO threads VALUES (1)")
    return {
        "one session": in_place,
        "threads": threads,
        "new session": fresh,
        "opened twice": lambda: delvec.enable_sql(spark) is spark,
    }


def builders(spark: SparkSession) -> dict[str, Step]:
    def create() -> Any:  # noqa: ANN401
        table = (
            DeltaTable.create(spark)
            .tableName("made")
            .addColumn("id", "INT", nullable=False, comment="it's")
            .addColumn("next", LongType(), generatedAlwaysAs="id + 1")
            .addColumn("key", "LONG", generatedByDefaultAs=IdentityGenerator(5, 2))
            .addColumns(StructType([StructField("day", StringType())]))
            .partitionedBy("day")
            .comment("a table")
            .property("mine", "yes")
            .execute()
        )
        spark.sql("INSERT INTO made (id, day) VALUES (1, 'a')")
        detail: Row = table.detail().collect()[0]
        facts = [detail[each] for each in ("name", "description", "partitionColumns")]
        return [rows(table.toDF()), facts, detail.properties["mine"]]

    def again(method: str) -> Step:
        def step() -> Any:  # noqa: ANN401
            builder = getattr(DeltaTable, method)(spark).tableName("made")
            return builder.addColumn("v", "STRING").execute().toDF().columns

        return step

    return {
        "create": create,
        "create again": again("create"),
        "create if not exists": again("createIfNotExists"),
        "replace": again("replace"),
        "by location": lambda: (
            DeltaTable.createOrReplace(spark)
            .location(f"{FOLDER}/made")
            .addColumn("id", "INT")
            .execute()
            .toDF()
            .columns
        ),
        "replaced by Spark": lambda: (
            DeltaTable.create(spark).tableName("x").addColumn("id", "INT", comment="${env:HOME}")
        ).execute(),
        "clustered": lambda: (
            DeltaTable.create(spark)
            .tableName("c")
            .addColumn("id", "INT")
            .addColumn("s", "STRUCT<b: INT>")
            .clusterBy("id", "s.b")
            .execute()
            .detail()
            .select("clusteringColumns")
            .first()
        ),
    }


def changes(spark: SparkSession) -> dict[str, Step]:
    path = f"{FOLDER}/changed"
    values = spark.createDataFrame([(i, str(i)) for i in range(8)], "id int, v string")
    values.write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    source = spark.createDataFrame([(5, "s"), (100, "t")], "id int, v string")
    spark.sql(f"CREATE TABLE named USING delta LOCATION '{path}'")
    named = DeltaTable.forName(spark, "default.named")

    def delete() -> Any:  # noqa: ANN401
        table.delete("id = 0")
        table.delete(col("id") == 1)
        table.alias("x").delete("x.id = 2")
        table.alias("x").delete(col("x.id") == 3)
        named.delete("named.id = 4 AND default.named.v = '4'")
        return rows(table.toDF())

    def update() -> Any:  # noqa: ANN401
        table.update("id = 5", {"v": "'five'"})
        table.alias("q").update(col("q.id") == 6, {"q.v": lit("six")})
        table.update(set={"v": "concat(v, '!')"})
        return rows(table.alias("z").toDF().where("z.id > 0"))

    def merge() -> Any:  # noqa: ANN401
        builder = table.alias("e").merge(source.alias("u"), "e.id = u.id")
        report = (
            builder.whenMatchedUpdate("u.id < 50", {"v": "u.v || e.v"})
            .whenNotMatchedInsert(values={"id": "u.id", "v": col("u.v")})
            .whenNotMatchedBySourceDelete("e.id = 7")
            .execute()
        )
        return [report.columns, rows(report), rows(table.toDF())]

    def evolve() -> Any:  # noqa: ANN401
        wider = source.withColumn("n", lit(1))
        builder = named.merge(wider, named.toDF().id == wider.id).withSchemaEvolution()
        return rows(builder.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute())

    def moved() -> None:
        rows_of = values.write.format("delta").mode("overwrite").option("dataChange", "false")
        rows_of.save(path)

    return {
        "delete": delete,
        "update": update,
        "moved": moved,
        "merge": merge,
        "evolve": evolve,
        "after": lambda: rows(table.toDF()),
    }


def maintenance(spark: SparkSession) -> dict[str, Step]:
    path = f"{FOLDER}/kept"
    for start in (0, 10):
        frame = spark.range(start, start + 2).selectExpr("id", "id % 2 AS part")
        frame.coalesce(1).write.format("delta").mode("append").save(path)
    table = DeltaTable.forPath(spark, path)
    spark.range(3).write.parquet(f"{FOLDER}/parquet")

    def protocol() -> Any:  # noqa: ANN401
        table.upgradeTableProtocol(1, 2)
        table.addFeatureSupport("v2Checkpoint")
        return table.detail().collect()[0].tableFeatures

    def clone() -> Any:  # noqa: ANN401
        made = table.cloneAtVersion(0, f"{FOLDER}/clone", True, properties={"a": "b"})
        return [made.toDF().count(), made.detail().collect()[0].properties["a"]]

    return {
        "optimize": lambda: list(table.optimize().executeCompaction().collect()[0].metrics)[:2],
        "zorder": lambda: table.optimize().executeZOrderBy("id", "part").columns,
        "history": lambda: [row.operation for row in table.history(2).collect()],
        "restore": lambda: [table.restoreToVersion(0).columns, table.toDF().count()],
        "vacuum": lambda: table.vacuum(200).collect(),
        "vacuum too early": lambda: table.vacuum(0),
        "protocol": protocol,
        "clone": clone,
        "deep clone": lambda: table.clone(f"{FOLDER}/deep"),
        "drop": lambda: table.dropFeatureSupport("deletionVectors"),
        "drop another": lambda: table.dropFeatureSupport("v2Checkpoint", True),
        "convert": lambda: (
            DeltaTable.convertToDelta(spark, f"parquet.`{FOLDER}/parquet`").toDF().count()
        ),
        "is": lambda: [
            DeltaTable.isDeltaTable(spark, f"{FOLDER}/{name}") for name in ("kept", "nothing")
        ],
    }


def alterations(spark: SparkSession) -> dict[str, Step]:
    spark.sql(
        "CREATE TABLE t (id INT, s STRUCT<a: INT, b: ARRAY<INT>>, v VARCHAR(5), n INT NOT NULL)"
        " USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    )
    spark.sql("INSERT INTO t VALUES (1, struct(1, array(1)), 'x', 1)")

    def all_of(*statements: str) -> Step:
        def step() -> Any:  # noqa: ANN401
            for each in statements:
                spark.sql(f"ALTER TABLE t {each}")
            return spark.table("t").schema.simpleString()

        return step

    return {
        "added": all_of("ADD COLUMNS (c STRING FIRST, d INT AFTER id, s.z LONG FIRST)"),
        "narrow": all_of("ALTER COLUMN id TYPE BIGINT"),
        "widened": all_of(
            "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'mine' = 'x')",
            "ALTER COLUMN id TYPE BIGINT, n DROP NOT NULL, s.b.element TYPE BIGINT",
        ),
        "moved": all_of("ALTER COLUMN id AFTER n", "ALTER COLUMN s.a FIRST"),
        "default": all_of("ALTER COLUMN n SET DEFAULT 7"),
        "with default": all_of(
            "SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
            "ALTER COLUMN n SET DEFAULT 7",
        ),
        "by files": all_of("DROP COLUMN d"),
        "mapped": all_of(
            "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "DROP COLUMNS (c, d)",
            "RENAME COLUMN s.z TO zz",
            "RENAME COLUMN v TO w",
        ),
        "rows": lambda: (
            spark.sql("INSERT INTO t (id) VALUES (2)"),
            [str(row) for row in spark.table("t").orderBy("id").collect()],
        )[1],
        "comment": lambda: (
            spark.sql("COMMENT ON TABLE t IS 'about'"),
            delvec.DeltaTable.for_name(spark, "t").detail().description,
        )[1],
        "history": lambda: [
            row.operation for row in DeltaTable.forName(spark, "t").history().collect()
        ],
    }


def main() -> None:
    """Run all steps, and print what each of them gave."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF")
    builder = builder.config("spark.sql.warehouse.dir", f"{FOLDER}/warehouse")
    # Plans of a few rows cost more to compile than to interpret.
    builder = builder.config("spark.sql.codegen.wholeStage", "false")
    builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    found = {
        part.__name__: {name: told(step) for name, step in part(spark).items()}
        for part in (sessions, builders, changes, maintenance, alterations)
    }
    print(json.dumps(found, default=str))  # noqa: T201


if __name__ == "__main__":
    main()
