-- How rows lie in files: clustering, columns without a type, replaced partitions.

# cluster by columns
CREATE TABLE c (a INT, s STRUCT<b: INT, c: STRING>, z STRING) USING delta CLUSTER BY (a, s.b)
INSERT INTO c SELECT id, named_struct('b', id % 10, 'c', 'x'), 'y' FROM range(100)
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns", "partitionColumns")
spark.sql("SHOW TBLPROPERTIES c").where("key = 'clusteringColumns'")
spark.sql("OPTIMIZE c").select("metrics.numFilesAdded", "metrics.numFilesRemoved", "metrics.filesRemoved.totalFiles")
spark.sql("OPTIMIZE c").select("metrics.numFilesAdded", "metrics.filesAdded")
ALTER TABLE c CLUSTER BY (z)
spark.sql("OPTIMIZE c").select("metrics.numFilesRemoved")
spark.sql("OPTIMIZE c FULL").select("metrics.numFilesRemoved")
OPTIMIZE c ZORDER BY (a)
OPTIMIZE c WHERE a = 1
spark.sql("DESCRIBE HISTORY c").where("operation = 'CLUSTER BY'").select("operationParameters")
spark.sql("DESCRIBE HISTORY c").where("operation = 'OPTIMIZE'").select("operationParameters.isFull", "operationParameters.clusterBy")
ALTER TABLE c CLUSTER BY NONE
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")

# cluster by, as select and replaced
CREATE TABLE c USING delta CLUSTER BY (id) AS SELECT id, 'x' AS v FROM range(10)
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")
CREATE OR REPLACE TABLE c USING delta CLUSTER BY (v, id) AS SELECT id, 'x' AS v FROM range(10)
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")
INSERT OVERWRITE c SELECT 1, 'y'
UPDATE c SET v = 'z'
spark.range(3).selectExpr("id", "1 w").write.format("delta").mode("overwrite").option("overwriteSchema", "true").save("$W/db/c")
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")
CREATE OR REPLACE TABLE c (id INT) USING delta
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")

# cluster by, and overwrite
! delta-spark forgets the clustering
CREATE TABLE c USING delta CLUSTER BY (id) AS SELECT id, 'x' AS v FROM range(10)
spark.range(3).selectExpr("id", "'x' v").write.format("delta").mode("overwrite").save("$W/db/c")
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")

# cluster by mapped columns
CREATE TABLE c (a INT, b INT, c STRING) USING delta CLUSTER BY (a, b) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
ALTER TABLE c RENAME COLUMN a TO aa
ALTER TABLE c DROP COLUMN aa
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")
ALTER TABLE c CLUSTER BY (c)
ALTER TABLE c DROP COLUMN aa
CREATE TABLE k SHALLOW CLONE c
spark.sql("DESCRIBE DETAIL k").select("clusteringColumns")
RESTORE TABLE c TO VERSION AS OF 1
spark.sql("DESCRIBE DETAIL c").select("clusteringColumns")

# cluster by what cannot be
CREATE TABLE e (id INT, w INT) USING delta PARTITIONED BY (w) CLUSTER BY (id)
CREATE TABLE e (id INT, w INT) USING delta CLUSTER BY (nope)
CREATE TABLE e (id INT, w INT) USING delta CLUSTER BY (id, ID)
CREATE TABLE e (id INT, w ARRAY<INT>) USING delta CLUSTER BY (w)
CREATE TABLE e (id INT, w BOOLEAN) USING delta CLUSTER BY (w)
CREATE TABLE e (a INT, b INT, c INT, d INT, e INT) USING delta CLUSTER BY (a, b, c, d, e)
CREATE TABLE e (a INT, b INT) USING delta CLUSTER BY (b) TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')
CREATE TABLE e (id INT) USING delta TBLPROPERTIES ('delta.feature.clustering' = 'supported')
CREATE TABLE e (id INT, w INT) USING delta PARTITIONED BY (w)
ALTER TABLE e CLUSTER BY (id)
CREATE TABLE f (id INT, w INT) USING delta CLUSTER BY (id) LOCATION '$W/x'
CREATE TABLE g (id INT, w INT) USING delta LOCATION '$W/x'
CREATE TABLE h (id INT, w INT) USING delta CLUSTER BY (id) LOCATION '$W/x'

# cluster by, through a writer
! delta-spark has no clusterBy for DataFrames
spark.range(3).write.format("delta").clusterBy("id").saveAsTable("c")
spark.range(3).write.format("delta").mode("append").clusterBy("id").saveAsTable("c")
spark.range(3).writeTo("d").using("delta").clusterBy("id").create()
spark.range(3).write.format("delta").clusterBy("id").save("$W/e")
spark.sql("DESCRIBE DETAIL delta.`$W/e`").select("clusteringColumns")
SHOW CREATE TABLE d

# columns without a type
CREATE TABLE v USING delta AS SELECT 1 AS id, NULL AS x
INSERT INTO v VALUES (2, NULL)
INSERT INTO v (id) VALUES (3)
ALTER TABLE v ADD COLUMN y VOID
UPDATE v SET x = NULL, id = 5 WHERE id = 1
DELETE FROM v WHERE id = 2
MERGE INTO v USING (SELECT 5 AS id, NULL AS x, NULL AS y UNION ALL SELECT 9, NULL, NULL) s ON v.id = s.id
  WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
DESCRIBE v
SELECT * FROM v WHERE x IS NULL ORDER BY id
spark.sql("SELECT 10 AS id, 'text' AS x").write.format("delta").mode("append").saveAsTable("v")
spark.sql("SELECT 10 AS id, 'text' AS x").write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("v")
spark.sql("SELECT 11 AS id, NULL AS z").write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("v")
DESCRIBE v
SELECT * FROM v ORDER BY id

# columns without a type in structs
CREATE TABLE v USING delta AS SELECT 1 AS id, named_struct('a', 1, 'b', NULL) AS s
INSERT INTO v SELECT 2, NULL
SELECT * FROM v ORDER BY id
SELECT s.b, s FROM v ORDER BY id
ALTER TABLE v ADD COLUMN s.c VOID
SELECT * FROM v ORDER BY id

# columns without a type where files could not omit them
CREATE TABLE v USING delta AS SELECT 1 AS id, array(NULL) AS s
CREATE TABLE v USING delta AS SELECT 1 AS id, map('a', NULL) AS s
CREATE TABLE v USING delta AS SELECT NULL AS x
CREATE TABLE v USING delta AS SELECT 1 AS id, named_struct('b', NULL) AS s
CREATE TABLE v (id INT, p VOID) USING delta PARTITIONED BY (p)

# overwrite the schema without the partition column
@P
spark.range(2).write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable("p")
DESCRIBE p
spark.range(2).selectExpr("id", "'a' AS s").write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("s").save("$W/db/p")
spark.range(2).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save("$W/db/p")
spark.range(2).selectExpr("id AS other").write.format("delta").mode("overwrite").save("$W/db/p")
SELECT * FROM p ORDER BY id

# clone over a table
@T
@S
spark.sql("CREATE OR REPLACE TABLE k SHALLOW CLONE t").drop("source_table_size")
INSERT INTO k VALUES (9, 9, 'k')
spark.sql("CREATE TABLE IF NOT EXISTS k SHALLOW CLONE s").drop("source_table_size")
SELECT * FROM k ORDER BY id
spark.sql("CREATE TABLE k SHALLOW CLONE s").drop("source_table_size")
spark.sql("CREATE OR REPLACE TABLE k SHALLOW CLONE s").drop("source_table_size")
SELECT * FROM k ORDER BY id
DELETE FROM k WHERE id = 2
SELECT * FROM s ORDER BY id
spark.sql("CREATE OR REPLACE TABLE k SHALLOW CLONE t VERSION AS OF 0 TBLPROPERTIES ('a' = 'b')").drop("source_table_size")
SELECT * FROM k ORDER BY id
SELECT * FROM k VERSION AS OF 1 ORDER BY id
CREATE OR REPLACE TABLE t SHALLOW CLONE t

# strict and legacy assignment
CREATE TABLE i (a INT, b STRING, c DECIMAL(5, 2), d DATE) USING delta
SET spark.sql.storeAssignmentPolicy=STRICT
INSERT INTO i VALUES (1L, 'x', 1.25, DATE '2026-01-01')
INSERT INTO i VALUES (1, 2, 1.25, DATE '2026-01-01')
INSERT INTO i VALUES (CAST(1 AS SMALLINT), 'x', CAST(1.25 AS DECIMAL(4, 2)), DATE '2026-01-01')
INSERT INTO i VALUES (1, 'x', 1.255, DATE '2026-01-01')
INSERT INTO i VALUES (1, 'x', 1.25, '2026-01-01')
SET spark.sql.storeAssignmentPolicy=LEGACY
INSERT INTO i VALUES (3000000000L, 5, 123456.5, '2026-02-02')
INSERT INTO i VALUES ('no', true, 'x', 'y')
SET spark.sql.storeAssignmentPolicy=ANSI
INSERT INTO i VALUES (3000000000L, 'x', 1, DATE '2026-01-01')
INSERT INTO i VALUES (1, 'x', 1.255, '2026-01-01')
SELECT * FROM i ORDER BY a, b, c

# twins in the clauses of a merge
CREATE TABLE w (id INT, c2 INT) USING delta
MERGE INTO w USING (SELECT 1 AS id, 2 AS c2) s ON w.id = s.id WHEN NOT MATCHED THEN INSERT (id, c2, C2) VALUES (1, 2, 3)
MERGE INTO w USING (SELECT 1 AS id, 2 AS c2) s ON w.id = s.id WHEN NOT MATCHED THEN INSERT (ID, C2) VALUES (1, 2)
MERGE INTO w USING (SELECT 1 AS id, 2 AS c2, 3 AS C2) s ON w.id = s.id WHEN NOT MATCHED THEN INSERT (id, c2) VALUES (s.id, 4)
MERGE INTO w USING (SELECT 7 AS id, 2 AS c2, 3 AS C2) s ON w.id = s.id WHEN NOT MATCHED THEN INSERT *
SELECT * FROM w ORDER BY id
