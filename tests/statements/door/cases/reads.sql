-- SELECT in every position, time travel and views.

# versions
@T
DELETE FROM t WHERE id = 1
SELECT * FROM t VERSION AS OF 0 ORDER BY id
SELECT count(*) FROM t FOR SYSTEM_VERSION AS OF 0
SELECT count(*) FROM t@v0
SELECT count(*) FROM delta.`$W/db/t@v0`
SELECT count(*) FROM delta.`$W/db/t` VERSION AS OF 1
SELECT count(*) FROM t VERSION AS OF 9
SELECT a.id FROM t VERSION AS OF 0 a LEFT ANTI JOIN t b USING (id)

# times
@T
SELECT count(*) FROM t TIMESTAMP AS OF '1999-01-01'
SELECT count(*) FROM t TIMESTAMP AS OF current_timestamp()
SELECT count(*) FROM t TIMESTAMP AS OF '2999-01-01'

# expressions and aggregates
@T
SELECT s, count(*) AS n, sum(v) AS v FROM t GROUP BY s ORDER BY s
SELECT t.*, t.id AS x FROM t WHERE t.v BETWEEN 10 AND 20 ORDER BY id
SELECT DISTINCT v IS NULL AS x FROM t ORDER BY x
SELECT max(id) FROM t
SELECT count(*) FROM t WHERE s LIKE '%a%'

# joins and subqueries
@T
@S
SELECT * FROM t JOIN s USING (id) ORDER BY id
SELECT a.id, b.id FROM t a LEFT JOIN t b ON a.id = b.id + 1 ORDER BY 1
SELECT id FROM t WHERE id IN (SELECT id FROM s) ORDER BY id
SELECT id, (SELECT max(v) FROM s WHERE s.id = t.id) AS m FROM t ORDER BY id
SELECT id FROM t UNION SELECT id FROM s ORDER BY id
WITH x AS (SELECT id FROM t), y AS (SELECT * FROM x WHERE id > 2) SELECT * FROM y ORDER BY id
SELECT * FROM t, LATERAL (SELECT s.v AS w FROM s WHERE s.id = t.id) ORDER BY id

# qualified names
@T
SELECT spark_catalog.default.nothing.id FROM t
SELECT `t`.`id` FROM `t` ORDER BY `id`
SELECT T.ID FROM T ORDER BY 1

# names by case
@T
SELECT ID, V FROM T ORDER BY Id

# views
@T
CREATE VIEW vw AS SELECT id, v FROM t WHERE id > 1
INSERT INTO t VALUES (7, 7, 'g')
SELECT * FROM vw ORDER BY id

# temporary views
@T
CREATE OR REPLACE TEMP VIEW tv AS SELECT * FROM t
DELETE FROM t WHERE id = 1
SELECT * FROM tv ORDER BY id

# temporary view of a source
@T
CREATE TEMP VIEW tv USING delta OPTIONS (path '$W/db/t')
SELECT * FROM tv ORDER BY id

# cache
@T
CACHE TABLE t
SELECT count(*) FROM t
DELETE FROM t WHERE id = 1
SELECT count(*) FROM t
INSERT INTO t VALUES (5, 5, 'x'), (6, 6, 'y')
SELECT count(*) FROM t
UNCACHE TABLE t

# parameters
@T
spark.sql("SELECT * FROM t WHERE id = :x", args={"x": 2})
~ SELECT * FROM t WHERE id = 2
spark.sql("SELECT * FROM IDENTIFIER(:name) WHERE id = 1", args={"name": "t"})
~ SELECT * FROM t WHERE id = 1
spark.sql("SELECT * FROM {t} WHERE id = {x}", t=spark.table("t"), x=1)

# metadata columns
! the scan of delvec has no _metadata yet
@T
SELECT count(DISTINCT _metadata.file_name) > 0 AS files FROM t
SELECT _metadata.file_size > 0 FROM t WHERE id = 1
SELECT id, _metadata.row_index FROM t ORDER BY id

# input file name
@P
SELECT count(DISTINCT input_file_name()) > 1 AS files FROM p

# nested columns
@N
SELECT id, st.a, st.b.c, ar[0], mp['k'], st.* FROM n ORDER BY id
SELECT * FROM n LATERAL VIEW explode(ar) x AS e ORDER BY id, e

# changes of a table
CREATE TABLE c (id INT, s STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')
INSERT INTO c VALUES (1, 'a'), (2, 'b')
UPDATE c SET s = 'z' WHERE id = 1
DELETE FROM c WHERE id = 2
SELECT id, s, _change_type, _commit_version FROM table_changes('c', 1) ORDER BY _commit_version, _change_type, id
SELECT count(*) FROM table_changes('c', 2, 2)
SELECT count(*) FROM table_changes('c', 2, 9)
SELECT count(*) FROM table_changes('nope', 1)

# tables that are not there
SELECT * FROM nowhere
SELECT * FROM delta.`$W/nowhere`
spark.read.format("delta").load("$W/nowhere")

# columns that are not there
@T
SELECT nope FROM t
SELECT t.nope FROM t

# readers
@T
DELETE FROM t WHERE id = 1
spark.read.format("delta").load("$W/db/t")
spark.read.format("delta").option("versionAsOf", 0).load("$W/db/t").count()
spark.read.format("delta").option("versionAsOf", 0).table("t").count()
spark.read.option("timestampAsOf", "2999-01-01").format("delta").load("$W/db/t").count()
spark.read.table("t").count()
spark.table("t").where("id > 2").orderBy("id").select("s")
spark.read.load("$W/db/t", format="delta", versionAsOf=0).count()
spark.read.format("delta").load("$W/db/t@v0").count()
spark.read.format("delta").schema("id INT").load("$W/db/t")
spark.read.format("delta").load()
spark.catalog.tableExists("t")

# readers by the name of delvec
@T
DELETE FROM t WHERE id = 1
spark.read.format("delvec").load("$W/db/t")
~ spark.read.format("delta").load("$W/db/t")
spark.read.format("delvec").option("VERSIONASOF", 0).option("columns", "v, ID").load("$W/db/t")
~ spark.read.format("delta").option("versionAsOf", 0).load("$W/db/t").select("v", "id")
spark.read.format("delvec").option("filters", '[["id", "<", 3]]').load("$W/db/t")
~ spark.read.format("delta").load("$W/db/t").where("id < 3")
spark.read.format("delvec").option("view", "positions").load("$W/db/t").count()
~ spark.range(1).count()
spark.read.format("delvec").option("timestampAsOf", "2999-01-01").load("$W/db/t")
spark.read.format("delvec").option("nope", "1").load("$W/db/t")
~ spark.read.format("delta").load("$W/nowhere")
spark.read.format("delvec").load()
~ spark.read.format("delta").load()
spark.read.format("delvec").load("$W/db/t")._jdf.queryExecution().executedPlan().toString().count("(Python)")
~ spark.range(0).count()
spark.read.format("delvec").option("timeZone", "Asia/Tokyo").load("$W/db/t")._jdf.queryExecution().executedPlan().toString().count("(Python)")
~ spark.range(1).count()
