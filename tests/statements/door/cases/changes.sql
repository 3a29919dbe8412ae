-- DELETE and UPDATE.

# delete by a condition
@T
DELETE FROM t WHERE id = 2
SELECT * FROM t ORDER BY id

# delete of all rows
@T
DELETE FROM t
SELECT count(*) FROM t

# delete of nothing
@T
DELETE FROM t WHERE id > 100

# delete where the condition is null
@T
DELETE FROM t WHERE v > 15

# delete by path
@T
DELETE FROM delta.`$W/db/t` WHERE s = 'a'
DELETE FROM delta.`$W/db/t` AS x WHERE x.id = 2

# delete with an alias
@T
DELETE FROM t AS x WHERE x.id = 1
DELETE FROM t x WHERE x.id = 3 AND x.v > 1

# delete by qualified names
@T
SELECT current_schema() = 'x'
DELETE FROM t WHERE t.id = 1
DELETE FROM spark_catalog.default.nothing

# delete with an alias that is not used
@T
DELETE FROM t AS x WHERE t.id = 1

# delete by a column that is not there
@T
DELETE FROM t WHERE nope = 1

# delete by a condition that is no boolean
@T
DELETE FROM t WHERE id + 1

# delete by a string
@T
DELETE FROM t WHERE 'true'

# delete by names in another case
@T
DELETE FROM T WHERE ID = 1 OR t.V = 20

# delete with IN and a subquery
@T
@S
DELETE FROM t WHERE id IN (SELECT id FROM s WHERE v > 200)
~ DELETE FROM t WHERE id IN (4, 5)

# delete with NOT IN and nulls
@T
@S
DELETE FROM t WHERE s NOT IN (SELECT s FROM s)
~ DELETE FROM t WHERE false

# delete with EXISTS, correlated
@T
@S
DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.id = t.id)
~ DELETE FROM t WHERE id IN (2, 4)

# delete with EXISTS, correlated by an alias
@T
@S
DELETE FROM t x WHERE EXISTS (SELECT 1 FROM s WHERE s.id = x.id AND s.v = 200)
~ DELETE FROM t x WHERE id = 2

# changes with EXISTS, correlated by the database
@T
@S
DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.id = $D.t.id AND s.id = 2)
~ DELETE FROM t WHERE id = 2
UPDATE $D.t SET v = 0 WHERE EXISTS (SELECT 1 FROM s WHERE s.id = spark_catalog.$D.t.id)
~ UPDATE t SET v = 0 WHERE id = 4
DELETE FROM t WHERE $D.t.id = 1

# delete with NOT EXISTS, correlated
@T
@S
DELETE FROM t x WHERE NOT EXISTS (SELECT 1 FROM s y WHERE y.id = x.id)
~ DELETE FROM t x WHERE id IN (1, 3)

# delete with a scalar subquery
@T
@S
DELETE FROM t WHERE id = (SELECT max(id) - 1 FROM s)
~ DELETE FROM t WHERE id = 4

# delete with a subquery of the table itself
@T
DELETE FROM t WHERE id IN (SELECT max(id) FROM t)
~ DELETE FROM t WHERE id = 4

# delete with a nondeterministic condition
! delvec evaluates a condition once, so that it may be random
@T
DELETE FROM t WHERE rand() < 2

# delete with parameters by name
@T
spark.sql("DELETE FROM t WHERE id = :x AND s = :y", args={"x": 1, "y": "a"})
~ DELETE FROM t WHERE id = 1
SELECT * FROM t ORDER BY id

# delete with parameters by position
@T
spark.sql("DELETE FROM t WHERE id = ? OR s = ?", args=[1, "c"])
~ DELETE FROM t WHERE id IN (1, 3)

# delete with comments
@T
/* a */ DELETE /* b */ FROM -- c
  t /* WHERE id = 1 */ WHERE -- d
  id /* ' */ = 2 -- ; '

# delete of partitions
@P
DELETE FROM p WHERE day = '2026-01-01'
DELETE FROM p WHERE day IS NULL

# delete from a temporary view
@T
CREATE TEMP VIEW v AS SELECT * FROM t
DELETE FROM v WHERE id = 1

# delete from a temporary view that filters
@T
CREATE TEMP VIEW v AS SELECT * FROM t WHERE id < 3
DELETE FROM v WHERE id > 0

# delete from a view
@T
CREATE VIEW v AS SELECT * FROM t
DELETE FROM v WHERE id = 1

# delete by a field
@N
DELETE FROM n WHERE st.a = 1
DELETE FROM n x WHERE x.st.b.c IS NULL

# delete behind WITH
@T
WITH x AS (SELECT 1L AS id) DELETE FROM t WHERE id IN (SELECT id FROM x)
~ DELETE FROM t WHERE id = 1

# delete from a table that is not there
DELETE FROM nowhere WHERE id = 1

# delete from a table of parquet
CREATE TABLE q (id INT) USING parquet
DELETE FROM q WHERE id = 1

# explain delete runs nothing
@T
spark.sql("EXPLAIN DELETE FROM t").count()
SELECT count(*) FROM t

# delete with odd names
CREATE TABLE `odd name` (`a b` INT, `c.d` INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
INSERT INTO `odd name` VALUES (1, 2), (3, 4)
DELETE FROM `odd name` WHERE `a b` = 1 AND `c.d` = 2
DELETE FROM `odd name` o WHERE o.`c.d` = 4

# update by a condition
@T
UPDATE t SET v = 0, s = 'z' WHERE id = 2
SELECT * FROM t ORDER BY id

# update of all rows
@T
UPDATE t SET v = id * 2

# update with old values of other columns
@T
UPDATE t SET id = v, v = id WHERE v IS NOT NULL

# update with an alias
@T
UPDATE t AS x SET x.v = x.id + 1 WHERE x.s = 'a'

# update with qualified names
@T
UPDATE t SET t.v = t.id WHERE t.id = 1

# update with a cast
@T
UPDATE t SET v = '7', s = 8 WHERE id = 1

# update with a cast that fails
@T
UPDATE t SET v = 'x' WHERE id = 1

# update with an overflow
@T
UPDATE t SET v = 99999999999 WHERE id = 1

# update of a field
@N
UPDATE n SET st.a = 5 WHERE id = 1
SELECT * FROM n ORDER BY id

# update of a nested field
@N
UPDATE n SET st.b.c = 'new', st.a = st.b.d
UPDATE n x SET x.st.b.d = 9 WHERE x.id = 1

# update of a struct
@N
UPDATE n SET st = named_struct('a', 3, 'b', named_struct('c', 'q', 'd', 4)) WHERE id = 2
UPDATE n SET st = named_struct('b', named_struct('d', 4, 'c', 'r'), 'a', 3) WHERE id = 2

# update of arrays and maps
@N
UPDATE n SET ar = array(9), mp = map('z', 2) WHERE id = 1

# update of a struct and its field
@N
UPDATE n SET st = NULL, st.a = 1

# update of a column twice
@T
UPDATE t SET v = 1, v = 2

# update of a column twice by case
@T
UPDATE t SET v = 1, V = 2

# update of a column that is not there
@T
UPDATE t SET nope = 1

# update with a column that is not there
@T
UPDATE t SET v = nope

# update with null
@T
UPDATE t SET v = NULL, s = NULL WHERE id = 1

# update to the default
CREATE TABLE d (a INT, b INT DEFAULT 42, c STRING DEFAULT 'x') USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')
INSERT INTO d VALUES (1, 2, 'q'), (3, 4, 'r')
UPDATE d SET b = DEFAULT, a = DEFAULT WHERE a = 1
UPDATE d SET c = default WHERE a = 3

# update with a subquery in the condition
@T
@S
UPDATE t SET v = -1 WHERE id IN (SELECT id FROM s)
~ UPDATE t SET v = -1 WHERE id IN (2, 4)
UPDATE t x SET v = -2 WHERE EXISTS (SELECT 1 FROM s WHERE s.id = x.id AND s.v = 400)
~ UPDATE t SET v = -2 WHERE id = 4

# update with a scalar subquery as value
@T
@S
UPDATE t SET v = (SELECT max(v) FROM s)

# update of partition columns
@P
UPDATE p SET day = DATE '2026-02-01' WHERE id = 1
UPDATE p SET day = NULL WHERE id = 2

# update with parameters
@T
spark.sql("UPDATE t SET v = :v WHERE id = :id", args={"v": 5, "id": 1})
~ UPDATE t SET v = 5 WHERE id = 1

# update of a temporary view
@T
CREATE TEMP VIEW v AS SELECT * FROM t
UPDATE v SET v = 0 WHERE id = 1

# update of generated columns
CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS (a + 1)) USING delta
INSERT INTO g (a) VALUES (1), (2)
UPDATE g SET a = 10 WHERE a = 1
SELECT * FROM g ORDER BY a
UPDATE g SET b = 5

# update that violates a constraint
@T
ALTER TABLE t ADD CONSTRAINT pos CHECK (id > 0)
UPDATE t SET id = -1 WHERE id = 1
UPDATE t SET v = -1 WHERE id = 1

# update that violates NOT NULL
CREATE TABLE nn (id INT NOT NULL, v INT) USING delta
INSERT INTO nn VALUES (1, 2)
UPDATE nn SET id = NULL

# update with names by case
@T
update T set V = 1, S = upper(S) where Id = 1

# update of nothing
@T
UPDATE t SET v = 1 WHERE id = 1000

# explain update runs nothing
@T
spark.sql("EXPLAIN UPDATE t SET v = 0").count()

# a WHERE without a condition
! delta-spark takes the word for an alias, and changes all rows
@T
DELETE FROM t WHERE
UPDATE t SET v = 1 WHERE
SELECT count(*) FROM t

# temporary views of DataFrames as targets
@T
@S
spark.table("t").createOrReplaceTempView("v")
DELETE FROM v WHERE id = 1
UPDATE v SET v = 0 WHERE id = 2
MERGE INTO v USING s ON v.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s
spark.read.format("delta").load("$W/db/t").createOrReplaceTempView("w")
DELETE FROM w WHERE id = 3
spark.table("t").where("id > 1").createOrReplaceTempView("x")
DELETE FROM x WHERE id = 4
SELECT * FROM t ORDER BY id

# temporary views of some columns as targets
! only views of all columns are taken for their table
@T
spark.table("t").select("id").createOrReplaceTempView("y")
DELETE FROM y WHERE id = 4
spark.table("t").selectExpr("id AS a", "v AS b", "s AS c").createOrReplaceTempView("z")
DELETE FROM z WHERE a = 4
CREATE TEMP VIEW a AS SELECT id, v FROM t
DELETE FROM a WHERE id = 1
UPDATE a SET v = 7 WHERE id = 2
CREATE TEMP VIEW b AS SELECT id AS x, v, s FROM t
DELETE FROM b WHERE x = 3
CREATE TEMP VIEW c AS SELECT v, s, id FROM t
DELETE FROM c WHERE id = 3
CREATE TEMP VIEW d AS SELECT id, v, s FROM t
DELETE FROM d WHERE id = 3
UPDATE d SET v = 7 WHERE id = 4
SELECT * FROM t ORDER BY id

# temporary views with names of their own as targets
! delta-spark takes the names of the view
@T
CREATE TEMP VIEW v (v, id, s) AS SELECT * FROM t
DELETE FROM v WHERE id = 1
SELECT count(*) FROM t

# temporary views of another database as targets
@T
CREATE TEMP VIEW v AS SELECT * FROM t
CREATE DATABASE IF NOT EXISTS other_of_views
USE other_of_views
DELETE FROM v WHERE id = 1
UPDATE v SET v = 1
USE default
SELECT count(*) FROM v
