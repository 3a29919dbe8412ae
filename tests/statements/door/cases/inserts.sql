-- INSERT and the settings that it follows.

# insert values
@T
INSERT INTO t VALUES (5, 50, 'e'), (6, NULL, NULL)
SELECT * FROM t ORDER BY id

# insert by position
@T
INSERT INTO t SELECT 7 AS s, 8 AS id, 'x' AS v

# insert a table
@T
@S
INSERT INTO t TABLE s
INSERT INTO t (SELECT * FROM s WHERE id > 4)

# insert by name
@T
INSERT INTO t BY NAME SELECT 'x' AS s, 9L AS id, 1 AS v
INSERT INTO t BY NAME SELECT 10L AS id

# insert by name with a column too many
@T
INSERT INTO t BY NAME SELECT 9L AS id, 1 AS extra

# insert with a list of columns
@T
INSERT INTO t (s, id) VALUES ('x', 8)
INSERT INTO t (S, Id) SELECT 'y', 9

# insert with a list that names a column twice
@T
INSERT INTO t (id, id) VALUES (1, 2)

# insert with a list that names no column
@T
INSERT INTO t (id, nope) VALUES (1, 2)

# insert with too few columns
@T
INSERT INTO t VALUES (1, 2)

# insert with too many columns
@T
INSERT INTO t VALUES (1, 2, 'a', 4)

# insert with too few values for the list
@T
INSERT INTO t (id, v) VALUES (1)

# insert with defaults
CREATE TABLE d (a INT, b INT DEFAULT 42, c STRING DEFAULT 'x') USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')
INSERT INTO d VALUES (1, DEFAULT, DEFAULT)
INSERT INTO d (a) VALUES (2)
INSERT INTO d (c, a) VALUES (DEFAULT, 3)
INSERT INTO d BY NAME SELECT 4 AS a
INSERT INTO d VALUES (5, 6)
SELECT * FROM d ORDER BY a

# insert with casts
@T
INSERT INTO t VALUES ('5', 6.0, 7)
INSERT INTO t SELECT 1 AS id, CAST(2 AS DECIMAL(5, 1)), DATE '2026-01-01'

# insert with casts that fail
@T
INSERT INTO t VALUES ('x', 1, 'a')

# insert with an overflow
@T
INSERT INTO t VALUES (1, 99999999999, 'a')

# insert with a type that does not fit
@T
INSERT INTO t VALUES (1, DATE '2026-01-01', 'a')

# insert with LEGACY assignment
@T
spark.conf.set("spark.sql.storeAssignmentPolicy", "LEGACY")
INSERT INTO t VALUES ('5', '6', 7)
INSERT INTO t VALUES ('x', 99999999999, 'a')
spark.conf.unset("spark.sql.storeAssignmentPolicy")

# insert with STRICT assignment
@T
spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
INSERT INTO t VALUES (5L, 6, 'x')
INSERT INTO t VALUES (5, 6, 'x')
INSERT INTO t VALUES (5L, 6L, 'x')
INSERT INTO t VALUES (5L, '6', 'x')
spark.conf.unset("spark.sql.storeAssignmentPolicy")

# insert structs by position
@N
INSERT INTO n VALUES (3, struct(2, struct('q', 3)), array(4), map('z', 5))
SELECT * FROM n ORDER BY id

# insert structs by name
@N
INSERT INTO n BY NAME SELECT 3L AS id, named_struct('b', named_struct('d', 1, 'c', 'x'), 'a', 2) AS st

# insert structs with other names by position
@N
INSERT INTO n SELECT 3L, named_struct('b', 1, 'a', named_struct('d', 'y', 'c', 2)), NULL, NULL

# insert structs with a field too few
@N
INSERT INTO n VALUES (3, struct(2), NULL, NULL)

# insert structs with a field too many
@N
INSERT INTO n VALUES (3, struct(2, struct('q', 3), 4), NULL, NULL)

# insert into structs in arrays
CREATE TABLE a (id INT, l ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, STRUCT<z: INT>>) USING delta
INSERT INTO a VALUES (1, array(struct(1, 'a'), struct(2, 'b')), map('k', struct(3)))
INSERT INTO a SELECT 2, array(named_struct('q', 1L, 'r', 'a')), map('k', named_struct('w', 3))
SELECT id, l[0].x, m['k'].z FROM a ORDER BY id

# insert overwrite
@T
INSERT OVERWRITE t VALUES (9, 9, 'i')
INSERT OVERWRITE TABLE t SELECT id + 1, v, s FROM t

# insert overwrite by name
@T
INSERT OVERWRITE t BY NAME SELECT 'x' AS s, 9L AS id
INSERT OVERWRITE t (s, v) VALUES ('q', 3)

# insert overwrite of a partition
@P
INSERT OVERWRITE p PARTITION (day = '2026-01-01') SELECT 9, 'z'
INSERT OVERWRITE p PARTITION (day = DATE '2026-01-05') VALUES (8, 'y')
SELECT * FROM p ORDER BY id

# insert into a partition
@P
INSERT INTO p PARTITION (day = '2026-01-03') VALUES (5, 'e')
INSERT INTO p PARTITION (day) VALUES (6, 'f', DATE '2026-01-04')
INSERT INTO p PARTITION (day = '2026-01-03') (s, id) VALUES ('g', 7)

# insert into a partition of a column that is none
@P
INSERT INTO p PARTITION (s = 'a') VALUES (5, DATE '2026-01-03')

# insert overwrite with dynamic partitions
@P
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
INSERT OVERWRITE p VALUES (9, 'z', DATE '2026-01-02')
INSERT OVERWRITE p PARTITION (day) VALUES (10, 'y', DATE '2026-01-07')
spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
SELECT * FROM p ORDER BY id

# insert overwrite with static partitions
@P
INSERT OVERWRITE p PARTITION (day) VALUES (10, 'y', DATE '2026-01-07')

# insert replace where
@P
INSERT INTO p REPLACE WHERE day = '2026-01-01' VALUES (11, 'n', DATE '2026-01-01')
INSERT INTO p REPLACE WHERE id > 1 SELECT 12L, 'o', DATE '2026-01-02'
SELECT * FROM p ORDER BY id

# insert replace where with rows outside
@P
INSERT INTO p REPLACE WHERE day = '2026-01-01' VALUES (11, 'n', DATE '2026-01-09')

# insert that violates a constraint
@T
ALTER TABLE t ADD CONSTRAINT pos CHECK (id > 0)
INSERT INTO t VALUES (-1, 1, 'a')

# insert that violates NOT NULL
CREATE TABLE nn (id INT NOT NULL, v INT) USING delta
INSERT INTO nn VALUES (NULL, 1)
INSERT INTO nn (v) VALUES (1)
INSERT INTO nn VALUES (1, NULL)

# insert with generated columns
CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS (a + 1)) USING delta
INSERT INTO g (a) VALUES (1)
INSERT INTO g VALUES (2, 3)
INSERT INTO g VALUES (2, 4)
SELECT * FROM g ORDER BY a

# insert with identity columns
CREATE TABLE i (k BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5), v STRING) USING delta
INSERT INTO i (v) VALUES ('a')
INSERT INTO i (k, v) VALUES (1, 'b')
SELECT * FROM i

# insert with identity by default
CREATE TABLE i (k BIGINT GENERATED BY DEFAULT AS IDENTITY, v STRING) USING delta
INSERT INTO i (v) VALUES ('a')
INSERT INTO i VALUES (100, 'b')

# insert with char and varchar
CREATE TABLE c (a CHAR(3), b VARCHAR(3)) USING delta
INSERT INTO c VALUES ('a', 'b')
INSERT INTO c VALUES ('abcd', 'b')
INSERT INTO c VALUES ('a', 'abcd')
SELECT concat(a, '|', b) FROM c

# insert with schema evolution
@T
spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
INSERT INTO t BY NAME SELECT 5L AS id, 1 AS extra
INSERT INTO t VALUES (6, 1, 'a', 2)
spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")

# insert by path
@T
INSERT INTO delta.`$W/db/t` VALUES (5, 5, 'p')
INSERT OVERWRITE delta.`$W/db/t` SELECT 6L, 6, 'q'

# insert with parameters
@T
spark.sql("INSERT INTO t VALUES (:id, 1, :s)", args={"id": 5, "s": "it's"})
~ INSERT INTO t VALUES (5, 1, "it's")

# insert behind WITH
@T
WITH x AS (SELECT 7L AS id) INSERT INTO t SELECT id, 1, 'w' FROM x
INSERT INTO t WITH x AS (SELECT 8L AS id) SELECT id, 1, 'w' FROM x

# insert from several
@T
@S
FROM s INSERT INTO t SELECT id, v, s WHERE id = 2 INSERT INTO t SELECT id, v, s WHERE id = 5

# insert of nothing
@T
INSERT INTO t SELECT * FROM t WHERE false

# insert of timestamps and decimals
CREATE TABLE k (a TIMESTAMP, b TIMESTAMP_NTZ, c DECIMAL(10, 2), d DATE, e BINARY, f BOOLEAN, g DOUBLE) USING delta
INSERT INTO k VALUES (TIMESTAMP '2026-01-01 01:02:03', TIMESTAMP_NTZ '2026-01-01 01:02:03', 1.5, DATE '2026-01-01', X'01', true, 1)
INSERT INTO k VALUES ('2026-01-01 01:02:03', '2026-01-01 01:02:03', '1.55', '2026-01-01', 'ab', 'true', '1')
SELECT * FROM k ORDER BY c

# explain insert runs nothing
@T
spark.sql("EXPLAIN INSERT INTO t VALUES (1, 2, 'a')").count()
SELECT count(*) FROM t

# truncate
@T
TRUNCATE TABLE t
SELECT count(*) FROM t

# truncate of a partition
@P
TRUNCATE TABLE p PARTITION (day = '2026-01-01')
