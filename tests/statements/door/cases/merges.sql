-- MERGE INTO.

# merge with all columns
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
SELECT * FROM t ORDER BY id

# merge with aliases and lists
@T
@S
MERGE INTO t AS a USING s AS b ON a.id = b.id WHEN MATCHED AND b.v > 300 THEN UPDATE SET a.v = b.v, s = a.s WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND b.id > 1 THEN INSERT (id, v) VALUES (b.id, b.v)

# merge by path
@T
@S
MERGE INTO delta.`$W/db/t` a USING delta.`$W/db/s` b ON a.id = b.id WHEN MATCHED THEN UPDATE SET v = b.v

# merge without an alias for the source's query
@T
MERGE INTO t USING (SELECT 2L AS k, 99 AS w) ON id = k WHEN MATCHED THEN UPDATE SET v = w WHEN NOT MATCHED THEN INSERT (id) VALUES (k)

# merge with a query whose columns are ambiguous
@T
MERGE INTO t USING (SELECT 2L AS id, 99 AS w) ON id = id WHEN MATCHED THEN UPDATE SET v = w

# merge with names of the target only
@T
@S
MERGE INTO t USING s q ON t.id = q.id WHEN MATCHED THEN UPDATE SET v = t.v + q.v, t.s = q.s

# merge with full names
@T
@S
MERGE INTO default.none USING s ON none.id = s.id WHEN MATCHED THEN DELETE
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND t.v IS NULL THEN DELETE

# merge of a table with itself
@T
MERGE INTO t a USING t b ON a.id = b.id + 1 WHEN MATCHED THEN UPDATE SET v = b.v

# merge of a table with itself without alias
@T
MERGE INTO t USING t ON t.id = t.id WHEN MATCHED THEN DELETE

# merge with not matched by source
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.v > 15 THEN UPDATE SET t.v = -t.v WHEN NOT MATCHED BY SOURCE THEN DELETE

# merge with not matched by target
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED BY TARGET THEN INSERT *

# merge of a row matched twice
@T
MERGE INTO t USING (SELECT * FROM VALUES (1L, 1), (1L, 2) AS _(id, v)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v

# merge with delete of a row matched twice
@T
MERGE INTO t USING (SELECT * FROM VALUES (1L, 1), (1L, 2) AS _(id, v)) s ON t.id = s.id WHEN MATCHED THEN DELETE

# merge with a condition of constants
@T
@S
MERGE INTO t USING s ON false WHEN NOT MATCHED THEN INSERT *

# merge with nulls in the condition
@T
MERGE INTO t USING (SELECT CAST(NULL AS STRING) s, 7L id, 1 v) x ON t.s = x.s WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *

# merge with null-safe equality
@T
MERGE INTO t USING (SELECT CAST(NULL AS STRING) s, 7L id, 1 v) x ON t.s <=> x.s WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *

# merge with values
@T
MERGE INTO t USING (VALUES (1L, 5), (9L, 6)) AS x(k, w) ON t.id = x.k WHEN MATCHED THEN UPDATE SET v = w WHEN NOT MATCHED THEN INSERT (id, v, s) VALUES (k, w, 'new')

# merge with a subquery in ON
@T
@S
MERGE INTO t USING s ON t.id = s.id AND t.id IN (SELECT id FROM s) WHEN MATCHED THEN DELETE
~ MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE

# merge with a subquery in a clause's condition
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.id IN (SELECT 2L) THEN DELETE
~ MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.id = 2 THEN DELETE

# merge with an aggregate
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND max(s.v) > 1 THEN DELETE

# merge from a temporary view
@T
CREATE TEMP VIEW w AS SELECT 1L id, 'n' s, 5 v
MERGE INTO t USING w ON t.id = w.id WHEN MATCHED THEN UPDATE SET *

# merge into a temporary view
@T
@S
CREATE TEMP VIEW w AS SELECT * FROM t
MERGE INTO w USING s ON w.id = s.id WHEN MATCHED THEN DELETE

# merge from a common table expression
@T
WITH x AS (SELECT 1L AS id, 'cte' AS s, 3 AS v) MERGE INTO t USING x ON t.id = x.id WHEN MATCHED THEN UPDATE SET *

# merge from a common table expression in the source
@T
MERGE INTO t USING (WITH x AS (SELECT 1L AS id, 'cte' AS s, 3 AS v) SELECT * FROM x) y ON t.id = y.id WHEN MATCHED THEN UPDATE SET *

# merge with parameters
@T
spark.sql("MERGE INTO t USING (SELECT :id AS k) x ON t.id = x.k WHEN MATCHED AND v < :most THEN UPDATE SET s = :s", args={"id": 1, "most": 100, "s": "p'"})
~ MERGE INTO t USING (SELECT 1 AS k) x ON t.id = x.k WHEN MATCHED AND v < 100 THEN UPDATE SET s = "p'"

# merge with fewer columns in the source
@T
MERGE INTO t USING (SELECT 1L AS id, 5 AS v) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET *

# merge with more columns in the source
@T
MERGE INTO t USING (SELECT 1L AS id, 5 AS v, 's' AS s, 1 AS extra) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

# merge with schema evolution
@T
MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1L AS id, 5 AS v, 's' AS s, 1 AS extra UNION ALL SELECT 8L, 8, 'e', 8) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
SELECT * FROM t ORDER BY id

# merge with schema evolution by lists
@T
MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1L AS id, 1 AS extra) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET extra = x.extra

# merge with schema evolution and fewer columns
@T
MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1L AS id, 1 AS extra UNION ALL SELECT 9L, 2) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

# merge with nested fields
@N
MERGE INTO n USING (SELECT 1L AS id) x ON n.id = x.id WHEN MATCHED THEN UPDATE SET st.a = 7, n.st.b.c = 'm'

# merge with structs by name
@N
MERGE INTO n USING (SELECT 1L AS id, named_struct('b', named_struct('d', 6, 'c', 'y'), 'a', 5) AS st, array(3L) AS ar, map('q', 2) AS mp) x ON n.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

# merge with an unknown column
@T
@S
MERGE INTO t USING s ON t.id = s.nope WHEN MATCHED THEN DELETE

# merge with an unknown column in SET
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1

# merge that sets a column of the source
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s.v = 1

# merge that sets twice
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 1, t.v = 2

# merge that inserts a column twice
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)

# merge with target columns in INSERT
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)

# merge with clauses in the wrong order
@T
@S
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED AND s.v > 1 THEN UPDATE SET *

# merge without clauses
@T
@S
MERGE INTO t USING s ON t.id = s.id

# merge with casts
@T
MERGE INTO t USING (SELECT 1 AS id, '12' AS v, 5 AS s) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

# merge with a cast that fails
@T
MERGE INTO t USING (SELECT 1 AS id, 'q' AS v, 5 AS s) x ON t.id = x.id WHEN MATCHED THEN UPDATE SET *

# merge with defaults
CREATE TABLE d (id INT, b INT DEFAULT 42) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')
INSERT INTO d VALUES (1, 1)
MERGE INTO d USING (SELECT explode(array(1, 2)) AS k) x ON d.id = x.k WHEN MATCHED THEN UPDATE SET b = DEFAULT WHEN NOT MATCHED THEN INSERT (id, b) VALUES (k, DEFAULT)
~ MERGE INTO d USING (SELECT explode(array(1, 2)) AS k) x ON d.id = x.k WHEN MATCHED THEN UPDATE SET b = 42 WHEN NOT MATCHED THEN INSERT (id, b) VALUES (k, 42)
MERGE INTO d USING (SELECT 3 AS k) x ON d.id = x.k WHEN NOT MATCHED THEN INSERT (id) VALUES (k)

# merge with generated columns
CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS (a + 1)) USING delta
INSERT INTO g (a) VALUES (1), (2)
MERGE INTO g USING (SELECT explode(array(1, 3)) AS k) x ON g.a = x.k WHEN MATCHED THEN UPDATE SET a = 10 WHEN NOT MATCHED THEN INSERT (a) VALUES (k)

# merge with a constraint
@T
ALTER TABLE t ADD CONSTRAINT pos CHECK (id > 0)
MERGE INTO t USING (SELECT -1L AS id) x ON t.id = x.id WHEN NOT MATCHED THEN INSERT (id) VALUES (x.id)

# merge into partitions
@P
MERGE INTO p USING (SELECT 1L AS id, 'z' AS s, DATE '2026-03-01' AS day UNION ALL SELECT 7L, 'y', NULL) x ON p.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *

# merge with names by case
@T
@S
merge into T using S on T.ID = S.Id when matched then update set V = S.V when not matched then insert (ID, V) values (S.ID, S.V)

# merge with comments and quotes
@T
MERGE /* WHEN */ INTO t USING (SELECT 1L AS id, "x'y -- z" AS s) x -- ON
  ON t.id = x.id WHEN MATCHED THEN UPDATE SET s = concat(x.s, ' /* no */')

# merge with an alias that is quoted
@T
MERGE INTO t AS `the t` USING (SELECT 1L AS `an id`) AS `the s` ON `the t`.id = `the s`.`an id` WHEN MATCHED THEN DELETE

# explain merge runs nothing
@T
spark.sql("EXPLAIN MERGE INTO t USING (SELECT 1L AS id) x ON t.id = x.id WHEN MATCHED THEN DELETE").count()

# merge with a source that is not there
@T
MERGE INTO t USING nowhere x ON t.id = x.id WHEN MATCHED THEN DELETE
