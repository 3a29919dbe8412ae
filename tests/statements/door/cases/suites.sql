-- More of what Delta's own suites ask of statements.

# merge that only inserts, of duplicates
@T
MERGE INTO t USING (SELECT * FROM VALUES (9L, 1), (9L, 2), (1L, 3) AS _(id, v)) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (id, v)

# merge whose conditions leave one of several matches
! delta-spark counts matches before it looks at the conditions of clauses
@T
MERGE INTO t USING (SELECT * FROM VALUES (1L, 1), (1L, 2) AS _(id, v)) s ON t.id = s.id WHEN MATCHED AND s.v = 1 THEN UPDATE SET v = s.v

# merge into an empty table and from an empty source
@T
DELETE FROM t
MERGE INTO t USING (SELECT 1L AS id, 1 AS v, 'a' AS s) x ON t.id = x.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *
MERGE INTO t USING (SELECT * FROM t WHERE false) x ON t.id = x.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *
MERGE INTO t USING (SELECT * FROM t WHERE false) x ON t.id = x.id WHEN NOT MATCHED BY SOURCE THEN DELETE

# merge with names that are swapped
@T
@S
MERGE INTO t AS s USING s AS t ON s.id = t.id WHEN MATCHED THEN UPDATE SET s.v = t.v WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)

# merge with not matched by source that names the source
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = s.v
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND s.v > 1 THEN DELETE

# merge with names in case that matters
@T
spark.conf.set("spark.sql.caseSensitive", "true")
MERGE INTO t USING (SELECT 1L AS ID, 5 AS V) x ON t.id = x.ID WHEN MATCHED THEN UPDATE SET v = x.V
MERGE INTO t USING (SELECT 1L AS id, 5 AS v) x ON t.ID = x.id WHEN MATCHED THEN DELETE
DELETE FROM t WHERE ID = 1
SELECT ID FROM t
spark.conf.unset("spark.sql.caseSensitive")

# merge with columns that have dots and blanks
CREATE TABLE d (`a.b` BIGINT, `c d` STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
INSERT INTO d VALUES (1, 'x'), (2, 'y')
MERGE INTO d t USING (SELECT 1L AS `a.b`, 'z' AS `c d` UNION ALL SELECT 5L, 'n') s ON t.`a.b` = s.`a.b` WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
UPDATE d SET `c d` = concat(`c d`, `a.b`) WHERE `a.b` > 1
SELECT `a.b`, `c d` FROM d ORDER BY 1

# merge that evolves structs
@N
MERGE WITH SCHEMA EVOLUTION INTO n USING (SELECT 1L AS id, named_struct('a', 9, 'b', named_struct('c', 'e', 'd', 1, 'more', true)) AS st) x ON n.id = x.id WHEN MATCHED THEN UPDATE SET *

# merge that violates NOT NULL
CREATE TABLE nn (id INT NOT NULL, v INT) USING delta
INSERT INTO nn VALUES (1, 1)
MERGE INTO nn USING (SELECT 1 AS id) x ON nn.id = x.id WHEN MATCHED THEN UPDATE SET id = NULL
MERGE INTO nn USING (SELECT 2 AS v) x ON nn.id = x.v WHEN NOT MATCHED THEN INSERT (v) VALUES (v)

# changes of a view of the catalog
@T
CREATE VIEW whole AS SELECT * FROM t
UPDATE whole SET v = 1
MERGE INTO whole USING (SELECT 1L AS id) x ON whole.id = x.id WHEN MATCHED THEN DELETE

# merge of char and varchar
CREATE TABLE c (id INT, a CHAR(3), b VARCHAR(3)) USING delta
INSERT INTO c VALUES (1, 'a', 'b')
MERGE INTO c USING (SELECT 1 AS id) x ON c.id = x.id WHEN MATCHED THEN UPDATE SET a = 'z', b = 'zz'
MERGE INTO c USING (SELECT 1 AS id) x ON c.id = x.id WHEN MATCHED THEN UPDATE SET b = 'long'
UPDATE c SET a = 'q' WHERE id = 1
SELECT concat(a, '|', b) FROM c

# update of elements
@N
UPDATE n SET ar[0] = 1
UPDATE n SET mp['k'] = 1
UPDATE n SET st.nope = 1
UPDATE n SET st.a.b = 1
UPDATE n SET id.a = 1
UPDATE n SET n.* = 1

# update by assignments that need a cast of structs
@N
UPDATE n SET st = named_struct('a', '7', 'b', named_struct('c', 1, 'd', 2L)) WHERE id = 1
UPDATE n SET st = struct(1, struct('x', 2)) WHERE id = 2
UPDATE n SET ar = array('1', '2') WHERE id = 1
UPDATE n SET st.b = NULL WHERE id = 1
SELECT * FROM n ORDER BY id

# update with comparisons to null
@T
UPDATE t SET v = 1 WHERE s = NULL
UPDATE t SET v = 1 WHERE s <> 'a'
UPDATE t SET v = 2 WHERE NOT (s <=> 'a')

# delete with literals
@T
DELETE FROM t WHERE null
DELETE FROM t WHERE id = NULL
DELETE FROM t WHERE false
DELETE FROM t WHERE true AND id = 1
DELETE FROM t WHERE true

# delete of nulls in partitions
@P
DELETE FROM p WHERE day IS NULL OR s = 'a'
DELETE FROM p WHERE day <=> DATE '2026-01-02'

# delete from what is cached
@T
CACHE TABLE t
SELECT count(*) FROM t
DELETE FROM delta.`$W/db/t` WHERE id = 1
SELECT count(*) FROM t
UPDATE t SET v = 7
SELECT max(v) FROM t
MERGE INTO t USING (SELECT 2L AS id) x ON t.id = x.id WHEN MATCHED THEN DELETE
SELECT count(*) FROM t
UNCACHE TABLE t

# insert into several partition columns
CREATE TABLE p2 (id INT, a INT, b STRING) USING delta PARTITIONED BY (a, b)
INSERT INTO p2 PARTITION (a = 1, b = 'x') VALUES (1)
INSERT INTO p2 PARTITION (a = 1, b) VALUES (2, 'y')
INSERT INTO p2 PARTITION (b = 'z', a = '2') SELECT 3
INSERT INTO p2 PARTITION (a = NULL, b = NULL) VALUES (4)
INSERT INTO p2 PARTITION (a, b) SELECT 5, 5, 'v'
INSERT INTO p2 PARTITION (a = 1, nope = 2) VALUES (6)
INSERT INTO p2 PARTITION (a = 1, a = 2) VALUES (6)
INSERT INTO p2 PARTITION (a = 'x', b = 'x') VALUES (6)
INSERT OVERWRITE p2 PARTITION (a = 1, b) VALUES (7, 'q')
SELECT * FROM p2 ORDER BY id

# insert overwrite of several partition columns, dynamic
CREATE TABLE p2 (id INT, a INT, b STRING) USING delta PARTITIONED BY (a, b)
INSERT INTO p2 VALUES (1, 1, 'x'), (2, 1, 'y'), (3, 2, 'x')
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
INSERT OVERWRITE p2 PARTITION (a = 1, b) VALUES (7, 'x')
INSERT OVERWRITE p2 SELECT 8, 2, 'x' WHERE false
spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
SELECT * FROM p2 ORDER BY id

# insert into a table that has none
@T
INSERT INTO t PARTITION (s = 'a') VALUES (1, 2)

# insert with partition values that need escapes
CREATE TABLE e (id INT, p STRING) USING delta PARTITIONED BY (p)
INSERT INTO e VALUES (1, 'a/b'), (2, 'a=b'), (3, 'a b'), (4, 'a%41'), (5, ''), (6, NULL), (7, "q'q"), (8, 'ü:*?')
SELECT * FROM e ORDER BY id
DELETE FROM e WHERE p = 'a/b'
UPDATE e SET p = 'x#y' WHERE p = 'a b'
INSERT OVERWRITE e PARTITION (p = 'a%41') VALUES (40)
SHOW PARTITIONS e
SELECT * FROM e WHERE p IN ('a%41', '', 'x#y') ORDER BY id

# statements with a path in quotes
@T
DELETE FROM t WHERE id = 1
spark.sql("OPTIMIZE '$W/db/t'").columns
spark.sql('VACUUM "$W/db/t" RETAIN 200 HOURS DRY RUN').columns
spark.sql("DESCRIBE HISTORY '$W/db/t'").select("version")
spark.sql("DESCRIBE HISTORY '$W/db/t' LIMIT 1").select("version")
spark.sql("DESCRIBE DETAIL '$W/db/t'").select("format", "partitionColumns")
spark.sql("RESTORE TABLE '$W/db/t' TO VERSION AS OF 0").columns
VACUUM '$W/nowhere'
OPTIMIZE 'db/t'
DESCRIBE HISTORY '$W/db/t

# restore in other words
@T
DELETE FROM t WHERE id = 1
spark.sql("RESTORE TABLE t TO FOR VERSION AS OF 0").columns
SELECT count(*) FROM t
DELETE FROM t WHERE id = 2
spark.sql("RESTORE TABLE t FOR SYSTEM_VERSION AS OF 1").columns
DELETE FROM t WHERE id = 3
spark.sql("RESTORE t TO TIMESTAMP AS OF '2999-01-01'").limit(0).count()
RESTORE t TO VERSION AS OF -1
RESTORE t TO VERSION AS OF 1.5
RESTORE t TO VERSION AS OF x
RESTORE t
SELECT count(*) FROM t

# vacuum in other words
@T
spark.sql("VACUUM t DRY RUN RETAIN 200 HOURS").columns
spark.sql("VACUUM t FULL RETAIN 200.5 HOURS").columns
VACUUM t RETAIN 'x' HOURS
VACUUM t RETAIN 200 DAYS
VACUUM TABLE t

# optimize in other words
@P
spark.sql("OPTIMIZE p WHERE day > '2026-01-01' AND day < '2026-02-01' ZORDER BY (id)").columns
spark.sql("OPTIMIZE p ZORDER BY id, s").columns
spark.sql("OPTIMIZE p ZORDER BY (`id`)").columns
spark.sql("OPTIMIZE p ZORDER BY (id, id)").columns
OPTIMIZE p ZORDER BY ()
OPTIMIZE p WHERE
OPTIMIZE TABLE p
REORG TABLE p APPLY

# show columns in other words
@T
SHOW COLUMNS FROM t
SHOW COLUMNS IN t IN $D
SHOW COLUMNS IN t FROM $D
SHOW COLUMNS IN delta.`$W/db/t`
SHOW COLUMNS IN nowhere FROM $D

# versions in other words
@T
DELETE FROM t WHERE id = 1
SELECT count(*) FROM t VERSION AS OF '0'
SELECT count(*) FROM t FOR VERSION AS OF 0
SELECT count(*) FROM t VERSION AS OF -1
SELECT count(*) FROM t VERSION AS OF 1.5
SELECT count(*) FROM t VERSION AS OF 'x'
SELECT count(*) FROM t TIMESTAMP AS OF '2999-01-01 00:00:00'
SELECT count(*) FROM t TIMESTAMP AS OF current_date() + INTERVAL 2 DAYS
SELECT count(*) FROM t TIMESTAMP AS OF 'x'
SELECT count(*) FROM t TIMESTAMP AS OF (SELECT max(id) FROM t)
SELECT count(*) FROM t TIMESTAMP AS OF NULL
CREATE VIEW old AS SELECT * FROM t VERSION AS OF 0
SELECT count(*) FROM old
SELECT count(*) FROM old VERSION AS OF 0
spark.read.format("delta").option("versionAsOf", "x").load("$W/db/t").count()
spark.read.format("delta").option("versionAsOf", 0).option("timestampAsOf", "2026-01-01").load("$W/db/t").count()
spark.read.format("delta").option("versionAsOf", 0).load("$W/db/t@v0").count()
spark.read.option("versionAsOf", 0).table("t").count()
SELECT count(*) FROM t WITH (versionAsOf = 0)
DELETE FROM t VERSION AS OF 0 WHERE id = 1
INSERT INTO t VERSION AS OF 0 VALUES (1, 1, 'a')

# history tells what was done
@T
INSERT INTO t VALUES (5, 5, 'e')
INSERT OVERWRITE t VALUES (1, 1, 'a'), (2, 2, 'b')
UPDATE t SET v = 3 WHERE id = 1
ALTER TABLE t SET TBLPROPERTIES ('k' = 'v')
ALTER TABLE t ADD COLUMNS (z INT)
ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)
ALTER TABLE t DROP CONSTRAINT c
spark.sql("RESTORE t TO VERSION AS OF 2").columns
spark.sql("DESCRIBE HISTORY t").selectExpr("version", "operation", "operationParameters['mode'] AS m", "readVersion")
spark.sql("DESCRIBE HISTORY t").where("operation = 'WRITE'").selectExpr("version", "operationMetrics['numOutputRows'] AS n")

# alter of nested columns
CREATE TABLE a (id INT, st STRUCT<x: INT, y: STRUCT<z: INT>>, l ARRAY<STRUCT<q: INT>>) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
INSERT INTO a VALUES (1, struct(1, struct(2)), array(struct(3)))
ALTER TABLE a ADD COLUMNS (st.n STRING FIRST, st.y.m INT AFTER z, l.element.r INT)
ALTER TABLE a RENAME COLUMN st.x TO renamed
ALTER TABLE a DROP COLUMN st.y.z
ALTER TABLE a ALTER COLUMN st.renamed COMMENT 'c'
ALTER TABLE a ALTER COLUMN id AFTER st
ALTER TABLE a ALTER COLUMN st.nope COMMENT 'c'
ALTER TABLE a ADD COLUMNS (st.n STRING)
ALTER TABLE a DROP COLUMNS (id, l)
ALTER TABLE a DROP COLUMN IF EXISTS id
ALTER TABLE a DROP COLUMN st
DESCRIBE a
SELECT * FROM a

# alter of types and nullability
CREATE TABLE a (id INT NOT NULL, s SMALLINT) USING delta
ALTER TABLE a ALTER COLUMN id DROP NOT NULL
ALTER TABLE a ALTER COLUMN id SET NOT NULL
ALTER TABLE a ALTER COLUMN s TYPE STRING
ALTER TABLE a ALTER COLUMN s TYPE SMALLINT
ALTER TABLE a CHANGE COLUMN s s SMALLINT COMMENT 'c'
ALTER TABLE a CHANGE COLUMN s renamed SMALLINT
ALTER TABLE a REPLACE COLUMNS (id INT, s SMALLINT, n STRING)
ALTER TABLE a ADD COLUMNS (m INT NOT NULL)
INSERT INTO a VALUES (NULL, 1, 'x')

# alter by path
@T
ALTER TABLE delta.`$W/db/t` ADD COLUMNS (z INT)
ALTER TABLE delta.`$W/db/t` SET TBLPROPERTIES ('k' = 'v')
ALTER TABLE delta.`$W/db/t` ADD CONSTRAINT c CHECK (id > 0)
SHOW TBLPROPERTIES delta.`$W/db/t` ('k')
DESCRIBE TABLE delta.`$W/db/t`
TRUNCATE TABLE delta.`$W/db/t`
DROP TABLE delta.`$W/db/nowhere`
ALTER TABLE delta.`$W/db/t` RENAME TO x

# create by other words
CREATE TABLE o (id INT) USING delta OPTIONS (path '$W/o')
INSERT INTO o VALUES (1)
SELECT * FROM delta.`$W/o`
spark.catalog.createTable("made", "$W/o", "delta")
SELECT * FROM made
CREATE TABLE s (id INT, st STRUCT<a: INT NOT NULL>) USING delta
INSERT INTO s VALUES (1, named_struct('a', CAST(NULL AS INT)))
spark.range(1).write.parquet("$W/q")
CREATE TABLE q (id BIGINT) USING delta LOCATION '$W/q'
CREATE TABLE q USING delta LOCATION '$W/q'
CREATE TABLE v (a INT, b INT GENERATED ALWAYS AS (a + nope)) USING delta
CREATE TABLE v (a INT, b INT GENERATED ALWAYS AS (rand())) USING delta
CREATE TABLE v (a INT CHECK (a > 0)) USING delta
CREATE TEMPORARY TABLE v (id INT) USING delta
CREATE EXTERNAL TABLE v (id INT) USING delta
REFRESH TABLE o
REFRESH TABLE delta.`$W/o`

# identity that is synced
! delvec has no SYNC IDENTITY
CREATE TABLE i (k BIGINT GENERATED BY DEFAULT AS IDENTITY, v STRING) USING delta
INSERT INTO i VALUES (100, 'a')
ALTER TABLE i ALTER COLUMN k SYNC IDENTITY
INSERT INTO i (v) VALUES ('b')
SELECT v, k > 100 OR v = 'a' FROM i
ALTER TABLE i ALTER COLUMN v SYNC IDENTITY

# constraints in other words
@T
ALTER TABLE t ADD CONSTRAINT `odd name` CHECK (s IS NULL OR s <> ')' AND v < 100 /* ) */)
ALTER TABLE t ADD CONSTRAINT two CHECK (id > 0) ;
ALTER TABLE t ADD CONSTRAINT three CHECK id > 0
ALTER TABLE t ADD CONSTRAINT four CHECK (nope > 0)
ALTER TABLE t ADD CONSTRAINT five CHECK (id)
ALTER TABLE t ADD CONSTRAINT six CHECK (id IN (SELECT 1))
ALTER TABLE t ADD CONSTRAINT seven UNIQUE (id)
alter table T drop constraint `ODD NAME`
INSERT INTO t VALUES (6, 1000, ')')

# convert in other words
spark.range(3).write.parquet("$W/q")
CONVERT TO DELTA parquet.`$W/q` NO STATISTICS
spark.range(3).write.parquet("$W/r")
CONVERT TO DELTA PARQUET.`$W/r`;
CONVERT TO DELTA parquet.`$W/r`
CONVERT TO DELTA '$W/r'
CREATE TABLE named (id INT) USING parquet
CONVERT TO DELTA json.`$W/q`
SELECT count(*) FROM delta.`$W/r`

# clones in other words
@T
spark.sql("CREATE TABLE delta.`$W/x` SHALLOW CLONE t").select("num_copied_files")
spark.sql("CREATE TABLE y SHALLOW CLONE delta.`$W/db/t` TBLPROPERTIES ('k' = 'v')").select("num_copied_files")
spark.sql("CREATE TABLE z SHALLOW CLONE t TIMESTAMP AS OF '2999-01-01'").select("num_copied_files")
CREATE TABLE y SHALLOW CLONE t
CREATE TABLE w SHALLOW CLONE nowhere
CREATE TABLE w SHALLOW CLONE t VERSION AS OF 9
CREATE TABLE w DEEP CLONE t
SHOW TBLPROPERTIES y ('k')
SELECT count(*) FROM delta.`$W/x`

# stream into a table of the catalog
@T
spark.readStream.table("t").writeStream.format("delta").option("checkpointLocation", "$W/cp").trigger(availableNow=True).toTable("u").awaitTermination()
SELECT * FROM u ORDER BY id
INSERT INTO t VALUES (9, 9, 'i')
spark.readStream.table("t").writeStream.format("delta").option("checkpointLocation", "$W/cp").trigger(availableNow=True).toTable("u").awaitTermination()
SELECT * FROM u ORDER BY id
spark.readStream.table("t").writeStream.format("parquet").option("checkpointLocation", "$W/cq").trigger(availableNow=True).toTable("u").awaitTermination()
SHOW TABLES

# refresh and other calls of the catalog
@T
spark.catalog.refreshTable("t")
REFRESH TABLE t
spark.catalog.cacheTable("t")
spark.catalog.refreshTable("t")
DELETE FROM t WHERE id = 1
SELECT count(*) FROM t
spark.catalog.uncacheTable("t")
spark.catalog.listColumns("t")
spark.catalog.getTable("t").tableType
spark.catalog.refreshByPath("$W/db/t")
CREATE VIEW refreshed AS SELECT * FROM t
spark.catalog.refreshTable("refreshed")

# a generated column of another type than its expression
! values are cast
CREATE TABLE v (a INT, b STRING GENERATED ALWAYS AS (a + 1)) USING delta
INSERT INTO v (a) VALUES (1)
SELECT * FROM v
