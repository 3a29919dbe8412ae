-- Texts of users: arguments never become syntax, and a path means one folder.

# arguments of queries
@T
INSERT INTO t VALUES (7, 7, "' OR '1' = '1"), (8, 8, '`t`; DROP TABLE t; --')
spark.sql("SELECT id FROM t WHERE s = :x", args={"x": "' OR '1' = '1"})
~ SELECT id FROM t WHERE id = 7
spark.sql("SELECT id FROM t WHERE s = ?", args=["`t`; DROP TABLE t; --"])
~ SELECT id FROM t WHERE id = 8
spark.sql("SELECT :x AS x FROM t WHERE id = 1", args={"x": "' \" ` ; /* -- \n ? :x $x {x}"})
~ spark.range(1).select(F.lit("' \" ` ; /* -- \n ? :x $x {x}").alias("x"))
spark.sql("SELECT count(*) FROM t VERSION AS OF :v", args={"v": 0})
~ SELECT count(*) FROM t VERSION AS OF 0
spark.sql("SELECT id FROM t WHERE s = :s AND id IN (SELECT id FROM t WHERE s = :s)", args={"s": "a"})
~ SELECT id FROM t WHERE s = 'a'
spark.sql("SELECT id FROM t WHERE id = :x", args={"x": "1 OR true"})
spark.sql("SELECT id FROM t WHERE id = :x")
spark.sql("SELECT id FROM t WHERE id = :x", args={"y": 1})
spark.sql("SELECT id FROM t WHERE id = ?", args=[])
spark.sql("SELECT id FROM t WHERE s <> ':x' AND id = :x -- :y", args={"x": 1})
~ SELECT id FROM t WHERE id = 1
spark.sql("SELECT * FROM {t} WHERE s = {x}", t=spark.table("t"), x="a' OR true --")

# arguments that are names
@T
@S
spark.sql("SELECT count(*) FROM IDENTIFIER(:x)", args={"x": "t; DROP TABLE s"})
spark.sql("SELECT count(*) FROM IDENTIFIER(:x)", args={"x": "t VERSION AS OF 0"})
spark.sql("SELECT count(*) FROM IDENTIFIER(:x)", args={"x": "delta.`$W/db/t`"})
~ SELECT count(*) FROM IDENTIFIER('delta.`$W/db/t`')
spark.sql("SELECT count(*) FROM IDENTIFIER(:x)", args={"x": "`t`"})
~ SELECT count(*) FROM t
spark.sql("SELECT IDENTIFIER(:x) FROM t ORDER BY 1", args={"x": "id, v"})
spark.sql("SELECT IDENTIFIER(:x) FROM t WHERE id = 1", args={"x": "`id`"})
~ SELECT id FROM t WHERE id = 1
spark.sql("INSERT INTO IDENTIFIER(:x) VALUES (9, 9, 'i')", args={"x": "t"})
~ INSERT INTO t VALUES (9, 9, 'i')
spark.sql("DELETE FROM IDENTIFIER(:x) WHERE id = 9", args={"x": "t"})
~ DELETE FROM IDENTIFIER('t') WHERE id = 9
spark.sql("UPDATE IDENTIFIER(:x) SET v = 0 WHERE id = 1", args={"x": "t"})
~ UPDATE IDENTIFIER('t') SET v = 0 WHERE id = 1
spark.sql("UPDATE t SET IDENTIFIER(:x) = 0", args={"x": "v, s"})
spark.sql("MERGE INTO IDENTIFIER(:x) a USING IDENTIFIER(:y) b ON a.id = b.id WHEN MATCHED THEN DELETE", args={"x": "t", "y": "s"})
~ MERGE INTO IDENTIFIER('t') a USING IDENTIFIER('s') b ON a.id = b.id WHEN MATCHED THEN DELETE
spark.sql("CREATE TABLE IDENTIFIER(:x) (id INT) USING delta", args={"x": "made"})
~ CREATE TABLE made (id INT) USING delta
spark.sql("DROP TABLE IDENTIFIER(:x)", args={"x": "made; s"})
spark.sql("DROP TABLE IDENTIFIER(:x)", args={"x": "made"})
~ DROP TABLE made
SHOW TABLES

# arguments of writes
@T
spark.sql("INSERT INTO t VALUES (:id, ?, 'x')", args={"id": 1})
spark.sql("INSERT INTO t VALUES (?, ?, ?)", args=[5, 6, "'); DROP TABLE t; --"])
~ INSERT INTO t VALUES (5, 6, "'); DROP TABLE t; --")
spark.sql("DELETE FROM t WHERE s = :x", args={"x": "a' OR true OR 'a' = '"})
~ DELETE FROM t WHERE false
spark.sql("DELETE FROM t WHERE s = ? AND id = ?", args=["'); DROP TABLE t; --", 5])
~ DELETE FROM t WHERE id = 5
spark.sql("UPDATE t SET s = :s, v = :v WHERE id = :id", args={"s": "it's \"`;", "v": 1, "id": 1})
~ UPDATE t SET s = 'it\'s "`;', v = 1 WHERE id = 1
spark.sql("UPDATE t SET s = ? WHERE id = ?", args=["?", 2])
~ UPDATE t SET s = '?' WHERE id = 2
spark.sql("MERGE INTO t USING (SELECT ? AS id) x ON t.id = x.id AND t.s <> ? WHEN MATCHED AND t.v < ? THEN UPDATE SET s = ?", args=[3, "' OR true", 100, ":s ? '"])
~ MERGE INTO t USING (SELECT 3 AS id) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET s = ":s ? '"
spark.sql("MERGE INTO t USING (SELECT :id AS id) x ON t.id = x.id WHEN NOT MATCHED THEN INSERT (id, s) VALUES (:id, :s)", args={"id": 50, "s": "\u2028'"})
~ MERGE INTO t USING (SELECT 50 AS id) x ON t.id = x.id WHEN NOT MATCHED THEN INSERT (id, s) VALUES (50, "\u2028'")
spark.sql("DELETE FROM t WHERE id = :x", args={"x": "1 OR true"})
spark.sql("DELETE FROM t WHERE id = :x")
spark.sql("UPDATE t SET v = :x", args={"y": 1})
SELECT * FROM t ORDER BY id

# arguments of statements that Spark has no grammar for
@T
DELETE FROM t WHERE id = 1
spark.sql("RESTORE t TO VERSION AS OF :v", args={"v": 0}).count()
spark.sql("OPTIMIZE t WHERE s = :x", args={"x": "a"}).count()
spark.sql("VACUUM t RETAIN :h HOURS", args={"h": 200}).count()
spark.sql("DESCRIBE HISTORY t LIMIT :n", args={"n": 1}).count()
spark.sql("ALTER TABLE t ADD CONSTRAINT c CHECK (id > :x)", args={"x": 0})
spark.sql("DESCRIBE HISTORY t", args={"n": 1}).count()
INSERT INTO t VALUES (-1, 1, 'a')

# dynamic SQL
@T
EXECUTE IMMEDIATE 'DELETE FROM t WHERE s = :x' USING "a' OR true --" AS x
~ DELETE FROM t WHERE false
EXECUTE IMMEDIATE 'UPDATE t SET s = ? WHERE id = ?' USING "it''s", 2
~ UPDATE t SET s = "it''s" WHERE id = 2
EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?, 1, ?)' USING 9, ';'
~ INSERT INTO t VALUES (9, 1, ';')
EXECUTE IMMEDIATE 'SELECT * FROM t WHERE id = :x' USING 2 AS x
~ SELECT * FROM t WHERE id = 2
DECLARE VARIABLE hidden STRING DEFAULT "c' OR true"
DELETE FROM t WHERE s = hidden
UPDATE t SET s = hidden WHERE id = 3
SELECT * FROM t WHERE s = hidden
DROP TEMPORARY VARIABLE hidden

# paths with dots
@T
@S
SELECT count(*) FROM delta.`$W/db/s/../t`
SELECT count(*) FROM delta.`$W/db/./t`
SELECT count(*) FROM delta.`$W/db/t/`
SELECT count(*) FROM delta.`$W//db//t`
SELECT count(*) FROM delta.`$W/db/t/..`
SELECT count(*) FROM delta.`$W/db/t/_delta_log`
SELECT count(*) FROM delta.`$W/db/t/_delta_log/../../s`
SELECT count(*) FROM delta.`$W/nowhere/../db/t`
INSERT INTO delta.`$W/db/s/../t` VALUES (5, 5, 'dots')
SELECT count(*) FROM t

# paths with schemes
@T
SELECT count(*) FROM delta.`file:$W/db/t`
SELECT count(*) FROM delta.`file://$W/db/t`
SELECT count(*) FROM delta.`FILE:$W/db/t`
SELECT count(*) FROM delta.`file://elsewhere$W/db/t`
SELECT count(*) FROM delta.`nonsense:$W/db/t`
SELECT count(*) FROM delta.`nonsense://x$W/db/t`
SELECT count(*) FROM delta.`file:db/t`
SELECT count(*) FROM delta.`db/t`
SELECT count(*) FROM delta.`t`
SELECT count(*) FROM delta.``
DELETE FROM delta.`file:$W/db/t` WHERE id = 1
SELECT count(*) FROM t

# paths with signs
spark.range(1).write.format("delta").save("$W/a%41")
spark.range(2).write.format("delta").save("$W/aA")
SELECT count(*) FROM delta.`$W/a%41`
SELECT count(*) FROM delta.`file:$W/a%41`
SELECT count(*) FROM delta.`$W/aA`
spark.range(3).write.format("delta").save("$W/b c")
SELECT count(*) FROM delta.`$W/b c`
SELECT count(*) FROM delta.`$W/b%20c`
SELECT count(*) FROM delta.`file:$W/b c`
spark.range(4).write.format("delta").save("$W/q`;'x")
SELECT count(*) FROM delta.`$W/q``;'x`
DELETE FROM delta.`$W/q``;'x` WHERE id = 0
CREATE TABLE located USING delta LOCATION '$W/a%41'
SELECT count(*) FROM located
CREATE TABLE spaced USING delta LOCATION '$W/b c'
SELECT count(*) FROM spaced
INSERT INTO spaced VALUES (9)
OPTIMIZE nowhere
DROP TABLE spaced

# versions behind a path
@T
DELETE FROM t WHERE id = 1
DELETE FROM t WHERE id = 2
SELECT count(*) FROM delta.`$W/db/t@v1`
SELECT count(*) FROM delta.`$W/db/t@V1`
SELECT count(*) FROM delta.`$W/db/t@v9`
SELECT count(*) FROM delta.`$W/db/t@v`
SELECT count(*) FROM delta.`$W/db/t@v-1`
SELECT count(*) FROM delta.`$W/db/t@20990101000000000`
SELECT count(*) FROM delta.`$W/db/t@19990101000000000`
SELECT count(*) FROM delta.`$W/db/t@v1` VERSION AS OF 0
SELECT count(*) FROM delta.`$W/db/t@v1@v0`
DELETE FROM delta.`$W/db/t@v0` WHERE id = 3
UPDATE delta.`$W/db/t@v0` SET v = 0
INSERT INTO delta.`$W/db/t@v0` VALUES (9, 9, 'v')
MERGE INTO delta.`$W/db/t@v0` a USING (SELECT 3L AS id) b ON a.id = b.id WHEN MATCHED THEN DELETE
SELECT * FROM t ORDER BY id

# a folder whose name looks like a version
@T
DELETE FROM t
spark.range(3).write.format("delta").save("$W/db/t@v0")
SELECT count(*) FROM delta.`$W/db/t@v0`
spark.read.format("delta").load("$W/db/t@v0").count()
INSERT INTO delta.`$W/db/t@v0` VALUES (7)
DELETE FROM delta.`$W/db/t@v0` WHERE id = 7
SELECT count(*) FROM t
