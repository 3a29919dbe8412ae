-- CREATE, REPLACE, DROP and what tells about tables.

# create with columns
CREATE TABLE c (id BIGINT NOT NULL COMMENT 'key', p STRING, d DECIMAL(10, 2), s STRUCT<a: INT COMMENT 'x', b: STRING>) USING delta PARTITIONED BY (p) COMMENT 'a table' TBLPROPERTIES ('delta.appendOnly' = 'false', 'k' = 'v')
DESCRIBE c
SHOW COLUMNS IN c
SHOW TABLES

# create twice
CREATE TABLE c (id INT) USING delta
CREATE TABLE c (id INT) USING delta
CREATE TABLE IF NOT EXISTS c (other STRING) USING delta

# create by path
CREATE TABLE delta.`$W/x` (id INT) USING delta
INSERT INTO delta.`$W/x` VALUES (1)
SELECT * FROM delta.`$W/x`

# create with a location
CREATE TABLE e (id INT) USING delta LOCATION '$W/x'
INSERT INTO e VALUES (1)
DROP TABLE e
CREATE TABLE e USING delta LOCATION '$W/x'
SELECT * FROM e

# create with a location that has other columns
CREATE TABLE e (id INT) USING delta LOCATION '$W/x'
CREATE TABLE f (id STRING) USING delta LOCATION '$W/x'
CREATE TABLE g (id INT, more INT) USING delta LOCATION '$W/x'
CREATE TABLE h (id INT) USING delta PARTITIONED BY (id) LOCATION '$W/x'
CREATE TABLE i (id INT) USING delta TBLPROPERTIES ('a' = 'b') LOCATION '$W/x'

# create without columns
! a table of delvec has columns
CREATE TABLE c USING delta
SELECT * FROM c

# create with a partition column of its own
CREATE TABLE c (id INT) USING delta PARTITIONED BY (day DATE)

# create with a partition by a column that is not there
CREATE TABLE c (id INT) USING delta PARTITIONED BY (nope)

# create with a partition by all columns
CREATE TABLE c (id INT) USING delta PARTITIONED BY (id)

# create with a partition by a transform
CREATE TABLE c (id INT, d DATE) USING delta PARTITIONED BY (years(d))

# create with buckets
CREATE TABLE c (id INT) USING delta CLUSTERED BY (id) INTO 4 BUCKETS

# create with a column twice
CREATE TABLE c (id INT, ID INT) USING delta

# create with an unknown property
CREATE TABLE c (id INT) USING delta TBLPROPERTIES ('delta.nope' = '1')

# create with a wrong property
CREATE TABLE c (id INT) USING delta TBLPROPERTIES ('delta.appendOnly' = 'perhaps')

# create with odd names
CREATE TABLE c (`a b` INT) USING delta
CREATE TABLE d (`a b` INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
INSERT INTO d VALUES (1)
SELECT `a b` FROM d

# create with defaults and no feature
! delvec adds the feature that a definition needs
CREATE TABLE c (id INT DEFAULT 1) USING delta

# create as select
@T
CREATE TABLE c USING delta PARTITIONED BY (s) COMMENT 'copy' TBLPROPERTIES ('k' = 'v') AS SELECT id, s FROM t WHERE id < 3
SELECT * FROM c ORDER BY id

# create as select twice
CREATE TABLE c USING delta AS SELECT 1 AS id
CREATE TABLE c USING delta AS SELECT 2 AS id
CREATE TABLE IF NOT EXISTS c USING delta AS SELECT 3 AS id
SELECT * FROM c

# create as select by path
CREATE TABLE delta.`$W/x` USING delta AS SELECT 1 AS id
CREATE OR REPLACE TABLE delta.`$W/x` USING delta AS SELECT 2 AS id, 'a' AS s
SELECT * FROM delta.`$W/x`

# create as select with a location
CREATE TABLE c USING delta LOCATION '$W/x' AS SELECT 1 AS id
SELECT * FROM delta.`$W/x`
CREATE TABLE d USING delta LOCATION '$W/x' AS SELECT 1 AS id

# create as select with columns of one name
CREATE TABLE c USING delta AS SELECT 1 AS id, 2 AS ID

# create as select with a void column
CREATE TABLE c USING delta AS SELECT 1 AS id, NULL AS nothing

# create as select that fails
CREATE TABLE c USING delta AS SELECT 1 / (id - id) AS x FROM range(2)
SHOW TABLES

# replace
@T
REPLACE TABLE t (x INT) USING delta
SELECT * FROM t
DESCRIBE HISTORY t LIMIT 0

# replace as select
@T
REPLACE TABLE t USING delta AS SELECT id AS key FROM t
SELECT * FROM t ORDER BY key

# replace of nothing
REPLACE TABLE nowhere USING delta AS SELECT 1 AS id
REPLACE TABLE nowhere (id INT) USING delta

# create or replace
CREATE OR REPLACE TABLE c (id INT COMMENT 'a') USING delta TBLPROPERTIES ('k' = 'v')
INSERT INTO c VALUES (1)
CREATE OR REPLACE TABLE c (s STRING) USING delta PARTITIONED BY (s) COMMENT 'new'
CREATE OR REPLACE TABLE c USING delta AS SELECT 1 AS a, 2 AS b

# create like
@P
CREATE TABLE q LIKE p
CREATE TABLE r LIKE p USING delta
CREATE TABLE IF NOT EXISTS r LIKE t
SELECT count(*) FROM q

# drop
@T
DROP TABLE t
SELECT * FROM t
DROP TABLE t
DROP TABLE IF EXISTS t

# drop and create again
@T
DROP TABLE t
CREATE TABLE t (other INT) USING delta
SELECT * FROM t

# describe
@P
DESCRIBE p
DESCRIBE TABLE p
DESC p id
DESCRIBE delta.`$W/db/p`

# describe detail
@P
spark.sql("DESCRIBE DETAIL p").drop("id", "createdAt", "lastModified", "sizeInBytes", "properties", "minReaderVersion", "minWriterVersion", "tableFeatures", "numFiles")
spark.sql("DESC DETAIL delta.`$W/db/p`").limit(0)

# describe history
@T
DELETE FROM t WHERE id = 1
UPDATE t SET v = 1 WHERE id = 2
INSERT INTO t VALUES (1, 1, '1')
spark.sql("OPTIMIZE t").limit(0)
spark.sql("DESCRIBE HISTORY t").select("version", "operation", "readVersion", "userMetadata")
spark.sql("DESCRIBE HISTORY t LIMIT 2").select("version")
spark.sql("DESC HISTORY delta.`$W/db/t`").limit(0)

# show tblproperties
CREATE TABLE c (id INT) USING delta TBLPROPERTIES ('k' = 'v')
SHOW TBLPROPERTIES c ('k')
SHOW TBLPROPERTIES c (k)

# show partitions
@P
SHOW PARTITIONS p
SHOW PARTITIONS p PARTITION (day = '2026-01-01')

# show create table
! delta-spark refuses it
CREATE TABLE c (id INT COMMENT 'x', p STRING) USING delta PARTITIONED BY (p) COMMENT 'about' TBLPROPERTIES ('k' = 'v')
spark.sql("SHOW CREATE TABLE c").collect()[0][0].split("LOCATION")[0]

# analyze
@T
ANALYZE TABLE t COMPUTE STATISTICS

# alter properties
@T
ALTER TABLE t SET TBLPROPERTIES ('k' = 'v', 'delta.appendOnly' = 'true')
DELETE FROM t WHERE id = 1
ALTER TABLE t UNSET TBLPROPERTIES ('delta.appendOnly')
ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('nope')

# alter columns
@T
ALTER TABLE t ADD COLUMNS (z INT, y STRING COMMENT 'c')
ALTER TABLE t ADD COLUMN z INT
INSERT INTO t VALUES (5, 5, '5', 5, 'y')
SELECT * FROM t ORDER BY id

# alter constraints
@T
ALTER TABLE t ADD CONSTRAINT pos CHECK (id > 0)
ALTER TABLE t ADD CONSTRAINT pos CHECK (id > 1)
ALTER TABLE t ADD CONSTRAINT big CHECK (id > 2)
ALTER TABLE t DROP CONSTRAINT pos
ALTER TABLE t DROP CONSTRAINT pos
ALTER TABLE t DROP CONSTRAINT IF EXISTS pos

# rename
@T
ALTER TABLE t RENAME TO u
SELECT count(*) FROM u
SELECT count(*) FROM t

# drop of a view that is no table
@T
CREATE VIEW v AS SELECT id FROM t
DROP TABLE v
SELECT * FROM v ORDER BY id

# shallow clone
@T
spark.sql("CREATE TABLE c SHALLOW CLONE t").drop("source_table_size")
SELECT * FROM c ORDER BY id
DELETE FROM c WHERE id = 1
INSERT INTO c VALUES (9, 9, 'n')

# shallow clone of a version to a location
@T
DELETE FROM t WHERE id = 1
spark.sql("CREATE OR REPLACE TABLE c SHALLOW CLONE t VERSION AS OF 0 LOCATION '$W/x'").drop("source_table_size")
CREATE TABLE IF NOT EXISTS c SHALLOW CLONE t
SELECT count(*) FROM c

# optimize
@T
INSERT INTO t VALUES (5, 5, '5')
spark.sql("OPTIMIZE t").select("path", "metrics.numFilesAdded", "metrics.numFilesRemoved")
spark.sql("OPTIMIZE t").limit(0)
spark.sql("OPTIMIZE delta.`$W/db/t` ZORDER BY (id, v)").select("path")

# optimize of partitions
@P
INSERT INTO p VALUES (4, 'x', DATE '2026-01-01')
spark.sql("OPTIMIZE p WHERE day = '2026-01-01'").select("metrics.numFilesAdded", "metrics.numFilesRemoved")
OPTIMIZE p ZORDER BY (day)
OPTIMIZE p ZORDER BY (nope)

# optimize by a condition on rows
! delvec takes any condition, and rewrites the files that may have such rows
@P
OPTIMIZE p WHERE id = 1

# explain runs nothing
! delta-spark has no EXPLAIN of statements outside of Spark's grammar
@T
@S
spark.sql("EXPLAIN OPTIMIZE t").count()
spark.sql("EXPLAIN FORMATTED VACUUM t RETAIN 0 HOURS").count()
spark.sql("EXPLAIN EXTENDED RESTORE t TO VERSION AS OF 0").count()
spark.sql("EXPLAIN DESCRIBE HISTORY t").count()
SELECT count(*) FROM t

# explain of changes runs nothing
@T
@S
spark.sql("EXPLAIN FORMATTED INSERT INTO t VALUES (9, 9, 'x')").count()
spark.sql("EXPLAIN EXTENDED INSERT OVERWRITE t SELECT * FROM s").count()
spark.sql("EXPLAIN MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE").count()
spark.sql("EXPLAIN FORMATTED UPDATE t SET v = 0").count()
spark.sql("EXPLAIN EXTENDED DELETE FROM t").count()
spark.sql("EXPLAIN CREATE OR REPLACE TABLE t USING delta AS SELECT 1 AS a").count()
spark.sql("EXPLAIN CREATE TABLE new USING delta AS SELECT 1 AS a").count()
spark.sql("EXPLAIN TRUNCATE TABLE t").count()
spark.sql("EXPLAIN ALTER TABLE t ADD COLUMNS (z INT)").count()
SELECT * FROM t ORDER BY id

# vacuum of a path, fractions, FULL
@T
spark.sql("VACUUM '$W/db/t' RETAIN 200.5 HOURS DRY RUN").columns
spark.sql("VACUUM t FULL").columns
spark.sql("VACUUM t LITE RETAIN 168.5 HOURS").columns

# vacuum
@T
spark.sql("VACUUM t").columns
spark.sql("VACUUM t RETAIN 200 HOURS DRY RUN").columns
VACUUM t RETAIN 0 HOURS
VACUUM nowhere
/* x */ VACUUM -- y
  t LITE

# restore
@T
DELETE FROM t WHERE id = 1
spark.sql("RESTORE TABLE t TO VERSION AS OF 0").select("num_removed_files", "num_restored_files")
SELECT count(*) FROM t
spark.sql("RESTORE t VERSION AS OF 1").limit(0)
RESTORE TABLE t TO VERSION AS OF 77
RESTORE TABLE delta.`$W/db/t` TO TIMESTAMP AS OF '1999-01-01'

# reorg
@T
DELETE FROM t WHERE id = 1
spark.sql("REORG TABLE t APPLY (PURGE)").select("path")

# convert
spark.range(3).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet("$W/q")
CONVERT TO DELTA parquet.`$W/q` PARTITIONED BY (p BIGINT)
SELECT * FROM delta.`$W/q` ORDER BY id
CONVERT TO DELTA parquet.`$W/none`

# generate
@T
ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')
GENERATE symlink_format_manifest FOR TABLE t
GENERATE nonsense FOR TABLE t

# statements that are none
OPTIMIZE
VACUUM t NONSENSE
DESCRIBE HISTORY
SELEC 1

# tables with the names of statements
CREATE TABLE history (id INT) USING delta
DESCRIBE history
CREATE TABLE detail (v STRING) USING parquet
DESC detail
DESC detail v
