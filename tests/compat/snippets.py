"""Snippets as the guides of delta-spark and deltalake have them, run as they are typed.

    python -m tests.compat.snippets FOLDER

Only imports are changed, to delvec's, and /tmp is the folder. What the last line of each gives, an
expression, is printed as JSON.
"""

# ruff: noqa: E501 - lines as the guides have them

from __future__ import annotations

import ast
import json
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec.compat.delta_spark import configure_spark_with_delta_pip

DELTA: Final = """
from pyspark.sql.functions import *
from pyspark.sql.types import *
from delvec.compat.delta_spark import *
"""
DELTALAKE: Final = "import pandas as pd\nfrom delvec import DeltaTable\n"
# A snippet, and what its last line gives. They go on where those above them ended.
SNIPPETS: Final[dict[str, tuple[str, Any]]] = {
    "quick start": (
        """
data = spark.range(0, 5)
data.write.format("delta").save("/tmp/delta-table")
df = spark.read.format("delta").load("/tmp/delta-table")
df.count()
""",
        5,
    ),
    "overwrite": (
        """
data = spark.range(5, 10)
data.write.format("delta").mode("overwrite").save("/tmp/delta-table")
[row.id for row in spark.sql("SELECT * FROM delta.`/tmp/delta-table` ORDER BY id").collect()]
""",
        [5, 6, 7, 8, 9],
    ),
    "conditional changes": (
        """
deltaTable = DeltaTable.forPath(spark, "/tmp/delta-table")
deltaTable.update(condition=expr("id % 2 == 0"), set={"id": expr("id + 100")})
deltaTable.delete(condition=expr("id % 2 == 0"))
newData = spark.range(0, 20)
deltaTable.alias("oldData").merge(
    newData.alias("newData"), "oldData.id = newData.id"
).whenMatchedUpdate(set={"id": col("newData.id")}).whenNotMatchedInsert(
    values={"id": col("newData.id")}
).execute()
deltaTable.toDF().agg(count("id"), sum("id")).collect()[0]
""",
        [20, 190],
    ),
    "time travel by option": (
        """
written = str(DeltaTable.forPath(spark, "/tmp/delta-table").history().where("version = 1").collect()[0].timestamp)
df1 = spark.read.format("delta").option("versionAsOf", 0).load("/tmp/delta-table")
df2 = spark.read.format("delta").option("timestampAsOf", written).load("/tmp/delta-table")
[df1.agg(max("id")).collect()[0][0], df2.count(), spark.sql("SELECT count(*) FROM delta.`/tmp/delta-table@v1`").collect()[0][0]]
""",
        [4, 5, 5],
    ),
    "time travel by SQL": (
        """
spark.sql("CREATE TABLE default.people10m (id LONG, name STRING) USING delta")
spark.sql("INSERT INTO default.people10m VALUES (1, 'a'), (2, 'b')")
spark.sql("DELETE FROM default.people10m WHERE id = 1")
first = spark.sql("DESCRIBE HISTORY default.people10m").where("version = 1").collect()[0].timestamp
spark.sql("SELECT count(*) FROM people10m VERSION AS OF 1").collect() + spark.sql(
    f"SELECT count(*) FROM people10m TIMESTAMP AS OF '{first}'"
).collect()
""",
        [[2], [2]],
    ),
    "create builder": (
        """
DeltaTable.createIfNotExists(spark).tableName("default.people").addColumn("id", "INT").addColumn(
    "firstName", "STRING"
).addColumn("birthDate", "TIMESTAMP").addColumn(
    "dateOfBirth", DateType(), generatedAlwaysAs="CAST(birthDate AS DATE)"
).addColumn("gender", "STRING", comment="surrogate").partitionedBy("gender").execute()
spark.sql("INSERT INTO people (id, birthDate, gender) VALUES (1, TIMESTAMP '1990-01-02 03:04:05', 'F')")
[str(row.dateOfBirth) for row in spark.table("people").collect()]
""",
        ["1990-01-02"],
    ),
    "create or replace builder": (
        """
DeltaTable.createOrReplace(spark).addColumn("id", "INT").addColumn("salary", "INT").property(
    "description", "table with people data"
).location("/tmp/people-data").execute()
spark.sql("DESCRIBE DETAIL delta.`/tmp/people-data`").collect()[0].properties["description"]
""",
        "table with people data",
    ),
    "create table by SQL": (
        """
spark.sql('''
CREATE OR REPLACE TABLE default.events (
  id BIGINT GENERATED ALWAYS AS IDENTITY, eventType STRING COMMENT 'kind', eventTime TIMESTAMP,
  eventDate DATE GENERATED ALWAYS AS (CAST(eventTime AS DATE))
) USING DELTA PARTITIONED BY (eventDate) COMMENT 'all events'
TBLPROPERTIES ('delta.appendOnly' = 'false')
''')
spark.sql("INSERT INTO events (eventType, eventTime) VALUES ('click', TIMESTAMP '2026-01-31 10:00:00')")
[[row.id, str(row.eventDate)] for row in spark.table("events").collect()]
""",
        [[1, "2026-01-31"]],
    ),
    "save as a table": (
        """
df = spark.createDataFrame([(1, "2017-01-01"), (2, "2017-01-02")], "id INT, date STRING")
df.write.format("delta").partitionBy("date").saveAsTable("default.dated")
df.write.format("delta").mode("append").saveAsTable("default.dated")
df.write.insertInto("default.dated")
spark.sql("SHOW PARTITIONS dated").count(), spark.table("dated").count()
""",
        [2, 6],
    ),
    "writer of a version 2": (
        """
df.writeTo("default.v2").using("delta").partitionedBy("date").createOrReplace()
df.writeTo("default.v2").append()
spark.table("v2").count()
""",
        4,
    ),
    "replace where": (
        """
replace_data = spark.createDataFrame([(7, "2017-01-01")], "id INT, date STRING")
replace_data.write.format("delta").mode("overwrite").option(
    "replaceWhere", "date >= '2017-01-01' AND date <= '2017-01-01'"
).saveAsTable("default.dated")
sorted(row.id for row in spark.table("dated").collect())
""",
        [2, 2, 2, 7],
    ),
    "dynamic partition overwrite": (
        """
replace_data.write.format("delta").mode("overwrite").option(
    "partitionOverwriteMode", "dynamic"
).saveAsTable("default.v2")
sorted(row.id for row in spark.table("v2").collect())
""",
        [2, 2, 7],
    ),
    "schema evolution": (
        """
wider = spark.createDataFrame([(8, "2017-01-03", 1.5)], "id INT, date STRING, amount DOUBLE")
wider.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("default.v2")
added = spark.table("v2").columns
spark.range(2).write.format("delta").mode("overwrite").option(
    "overwriteSchema", "true"
).saveAsTable("default.v2")
[added, spark.table("v2").columns]
""",
        [["id", "date", "amount"], ["id"]],
    ),
    "metadata of a commit and of an application": (
        """
for attempt in range(2):
    spark.range(1).write.format("delta").mode("append").option("txnVersion", 1).option(
        "txnAppId", "job"
    ).option("userMetadata", "overwritten-for-fixing").save("/tmp/delta-table")
spark.sql("DESCRIBE HISTORY delta.`/tmp/delta-table` LIMIT 2").select("operation", "userMetadata").collect()
""",
        [["WRITE", "overwritten-for-fixing"], ["MERGE", None]],
    ),
    "merge by SQL, all clauses": (
        """
spark.sql("CREATE TABLE people10mupdates AS SELECT 2L id, 'B' name UNION ALL SELECT 3L, 'c'")
spark.sql("INSERT INTO people10m VALUES (9, 'gone'), (10, 'old')")
spark.sql('''
MERGE INTO people10m AS target USING people10mupdates AS source ON target.id = source.id
WHEN MATCHED AND source.name = 'x' THEN DELETE
WHEN MATCHED THEN UPDATE SET target.name = source.name
WHEN NOT MATCHED THEN INSERT (id, name) VALUES (source.id, source.name)
WHEN NOT MATCHED BY SOURCE AND target.id = 9 THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET target.name = upper(target.name)
''')
spark.sql("SELECT * FROM people10m ORDER BY id").collect()
""",
        [[2, "B"], [3, "c"], [10, "OLD"]],
    ),
    "merge of changes, slowly changing": (
        """
customers = spark.createDataFrame([(1, "old", True)], "customerId INT, address STRING, current BOOLEAN")
customers.write.format("delta").saveAsTable("customers")
updates = spark.createDataFrame([(1, "new"), (2, "first")], "customerId INT, address STRING")
customersTable = DeltaTable.forName(spark, "customers")
newAddresses = (
    updates.alias("updates").join(customersTable.toDF().alias("customers"), "customerId")
    .where("customers.current = true AND updates.address <> customers.address")
)
staged = newAddresses.selectExpr("NULL as mergeKey", "customerId", "updates.address").union(
    updates.selectExpr("customerId as mergeKey", "customerId", "address")
)
customersTable.alias("customers").merge(
    staged.alias("staged_updates"), "customers.customerId = mergeKey"
).whenMatchedUpdate(
    condition="customers.current = true AND customers.address <> staged_updates.address",
    set={"current": "false"},
).whenNotMatchedInsert(
    values={"customerId": "staged_updates.customerId", "address": "staged_updates.address", "current": "true"}
).execute()
spark.sql("SELECT * FROM customers ORDER BY customerId, current").collect()
""",
        [[1, "old", False], [1, "new", True], [2, "first", True]],
    ),
    "stream": (
        """
(
    spark.readStream.format("delta").load("/tmp/delta-table")
    .writeStream.format("delta").outputMode("append").option("checkpointLocation", "/tmp/checkpoints")
    .trigger(availableNow=True).start("/tmp/streamed").awaitTermination()
)
spark.read.format("delta").load("/tmp/streamed").count()
""",
        21,
    ),
    "stream of upserts": (
        """
def upsertToDelta(microBatchOutputDF, batchId):
    (
        DeltaTable.forName(spark, "people10m").alias("t")
        .merge(microBatchOutputDF.alias("s"), "s.id = t.id")
        .whenMatchedUpdate(set={"name": "'seen'"})
        .execute()
    )

spark.readStream.format("delta").load("/tmp/streamed").writeStream.foreachBatch(upsertToDelta).outputMode(
    "update"
).trigger(availableNow=True).start().awaitTermination()
spark.sql("SELECT count(*) FROM people10m WHERE name = 'seen'").collect()[0][0]
""",
        3,
    ),
    "history and detail": (
        """
deltaTable = DeltaTable.forPath(spark, "/tmp/delta-table")
fullHistoryDF = deltaTable.history()
lastOperationDF = deltaTable.history(1)
detailDF = deltaTable.detail()
[fullHistoryDF.count(), lastOperationDF.collect()[0].operation, detailDF.collect()[0].format]
""",
        [6, "WRITE", "delta"],
    ),
    "vacuum": (
        """
deltaTable.vacuum()
deltaTable.vacuum(1000)
spark.sql("VACUUM delta.`/tmp/delta-table` RETAIN 1000 HOURS DRY RUN").count()
""",
        0,
    ),
    "optimize": (
        """
deltaTable = DeltaTable.forName(spark, "dated")
deltaTable.optimize().where("date='2017-01-02'").executeCompaction()
spark.sql("OPTIMIZE dated WHERE date >= '2017-01-01' ZORDER BY (id)").columns
""",
        ["path", "metrics"],
    ),
    "restore": (
        """
deltaTable = DeltaTable.forPath(spark, "/tmp/delta-table")
deltaTable.restoreToVersion(0)
by_call = deltaTable.toDF().count()
spark.sql("RESTORE TABLE delta.`/tmp/delta-table` TO VERSION AS OF 5")
[by_call, deltaTable.toDF().count()]
""",
        [5, 21],
    ),
    "change data feed": (
        """
spark.sql("CREATE TABLE student (id INT, name STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
spark.sql("INSERT INTO student VALUES (1, 'a')")
spark.sql("UPDATE student SET name = 'b'")
by_sql = spark.sql("SELECT _change_type, name FROM table_changes('student', 1) ORDER BY _commit_version, _change_type DESC")
by_option = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).table("student")
[by_sql.collect(), by_option.count()]
""",
        [[["insert", "a"], ["update_preimage", "a"], ["update_postimage", "b"]], 2],
    ),
    "constraints": (
        """
spark.sql("ALTER TABLE people10m ADD CONSTRAINT idIsPositive CHECK (id > 0)")
try:
    spark.sql("INSERT INTO people10m VALUES (-1, 'x')")
    refused = False
except Exception as error:
    refused = "idispositive" in str(error).lower()
spark.sql("ALTER TABLE people10m DROP CONSTRAINT idIsPositive")
refused
""",
        True,
    ),
    "columns by name": (
        """
spark.sql("ALTER TABLE people10m ADD COLUMNS (age INT AFTER id)")
spark.sql("ALTER TABLE people10m SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5', 'delta.columnMapping.mode' = 'name')")
spark.sql("ALTER TABLE people10m RENAME COLUMN name TO fullName")
spark.sql("ALTER TABLE people10m DROP COLUMN age")
spark.table("people10m").columns
""",
        ["id", "fullName"],
    ),
    "clone and convert": (
        """
spark.range(3).write.parquet("/tmp/plain")
spark.sql("CONVERT TO DELTA parquet.`/tmp/plain`")
spark.sql("CREATE TABLE cloned SHALLOW CLONE delta.`/tmp/plain`")
DeltaTable.isDeltaTable(spark, "/tmp/plain"), spark.table("cloned").count()
""",
        [True, 3],
    ),
    "deltalake: reading": (
        """
dt = DeltaTable("/tmp/delta-table")
[len(dt.to_pandas()), dt.count()]
""",
        [21, 21],
    ),
    "deltalake: changes": (
        """
dt = DeltaTable("/tmp/people-data")
dt.append(pd.DataFrame({"id": [1, 2], "salary": [10, 20]}).astype("int32"))
dt.update(predicate="id = 1", updates={"salary": "30"})
dt.delete("id = 2")
source = pd.DataFrame({"id": [1, 5], "salary": [11, 55]}).astype("int32")
(
    dt.merge(source, predicate="target.id = source.id", source_alias="source", target_alias="target")
    .when_matched_update_all()
    .when_not_matched_insert_all()
    .execute()
)
sorted(dt.to_pandas().values.tolist())
""",
        [[1, 11], [5, 55]],
    ),
}


def run(code: str, names: dict[str, Any]) -> Any:  # noqa: ANN401
    """Run a snippet; return what its last line gives, or its error."""
    *statements, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    try:
        exec(compile(ast.Module(statements, []), "snippet", "exec"), names)  # noqa: S102
        return eval(compile(ast.Expression(last.value), "snippet", "eval"), names)  # noqa: S307
    except Exception as error:  # noqa: BLE001 - the test shows it
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Run all snippets in one session, and print what each of them gave."""
    folder = sys.argv[-1]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF")
    builder = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    # Plans of a few rows cost more to compile than to interpret.
    builder = builder.config("spark.sql.codegen.wholeStage", "false")
    builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    found = {}
    names: dict[str, dict[str, Any]] = {each: {"spark": spark} for each in (DELTA, DELTALAKE)}
    for imports, given in names.items():
        exec(imports, given)  # noqa: S102
    for name, (code, _) in SNIPPETS.items():
        given = names[DELTALAKE if name.startswith("deltalake") else DELTA]
        found[name] = run(code.replace("/tmp", folder), given)  # noqa: S108
    print(json.dumps(found, default=str))  # noqa: T201


if __name__ == "__main__":
    main()
