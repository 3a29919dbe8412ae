-- What is no business of the door: the plan, the rows and the error are those of a session without.

# queries of a warehouse
CREATE TEMP VIEW sales AS SELECT id AS k, id % 5 AS item, id % 7 AS store, id % 11 AS customer, date_add(DATE '2026-01-01', CAST(id % 60 AS INT)) AS day, CAST(id * 1.5 AS DECIMAL(10, 2)) AS price, CAST(id % 4 + 1 AS INT) AS qty FROM range(0, 300, 1, 2)
spark.table("sales").write.partitionBy("store").parquet("$W/sales")
CREATE OR REPLACE TEMP VIEW sales USING parquet OPTIONS (path '$W/sales')
spark.sql("SELECT id AS item, concat('i', id) AS name, id % 2 = 0 AS gift, array(id, id + 1) AS tags FROM range(5)").write.parquet("$W/item")
CREATE TEMP VIEW item USING parquet OPTIONS (path '$W/item')
spark.sql("SELECT id AS store, IF(id < 3, 'TN', 'CA') AS state FROM range(7)").write.json("$W/store")
CREATE TEMP VIEW store (store BIGINT, state STRING) USING json OPTIONS (path '$W/store')
SELECT i.name, sum(s.price) AS total FROM sales s JOIN item i USING (item) WHERE s.day BETWEEN DATE '2026-01-05' AND DATE '2026-01-20' GROUP BY i.name HAVING sum(s.qty) > 1 ORDER BY total DESC, i.name LIMIT 10
SELECT state, item, sum(price) AS p, rank() OVER (PARTITION BY grouping(state) + grouping(item) ORDER BY sum(price) DESC) AS r FROM sales JOIN store USING (store) GROUP BY ROLLUP (state, item) ORDER BY r, state, item
SELECT store, item, count(DISTINCT customer) AS c, approx_count_distinct(k) FROM sales GROUP BY GROUPING SETS ((store, item), (store), ()) ORDER BY store, item
SELECT store, day, price, sum(price) OVER w AS running, lag(price, 1, 0) OVER w AS before, ntile(4) OVER w, first_value(k) IGNORE NULLS OVER w FROM sales WINDOW w AS (PARTITION BY store ORDER BY day, k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) ORDER BY store, day, k LIMIT 20
WITH a AS (SELECT customer, sum(price) AS p FROM sales WHERE store = 1 GROUP BY customer), b AS (SELECT customer, sum(price) AS p FROM sales WHERE store = 2 GROUP BY customer) SELECT a.customer, b.p / a.p AS growth FROM a JOIN b ON a.customer = b.customer WHERE a.p > 0 AND b.p > a.p * 0.5 ORDER BY 1
SELECT * FROM (SELECT store, qty, price FROM sales) PIVOT (sum(price) AS p, count(*) AS n FOR qty IN (1 AS one, 2 AS two)) ORDER BY store
SELECT * FROM (SELECT 1 AS k, 2 AS a, 3 AS b) UNPIVOT INCLUDE NULLS (v FOR n IN (a, b)) ORDER BY n
SELECT s.k FROM sales s WHERE s.price > (SELECT avg(price) * 1.2 FROM sales x WHERE x.store = s.store) AND EXISTS (SELECT 1 FROM item i WHERE i.item = s.item AND i.gift) ORDER BY s.k LIMIT 5
SELECT k FROM sales WHERE item NOT IN (SELECT item FROM item WHERE gift) EXCEPT SELECT k FROM sales WHERE store = 1 INTERSECT ALL SELECT k FROM sales ORDER BY k LIMIT 5
SELECT i.item, t.tag, pos FROM item i LATERAL VIEW OUTER posexplode(i.tags) t AS pos, tag ORDER BY 1, 3
SELECT i.item, l.n FROM item i, LATERAL (SELECT count(*) AS n FROM sales s WHERE s.item = i.item) l ORDER BY 1
SELECT /*+ BROADCAST(i), REPARTITION(2) */ s.store, count(*) FROM sales s LEFT SEMI JOIN item i ON s.item = i.item GROUP BY ALL ORDER BY ALL
SELECT store, collect_list(k) FILTER (WHERE k < 20) AS ks, percentile_approx(price, 0.5), max_by(k, price), any_value(qty) IS NULL FROM sales GROUP BY store ORDER BY store
SELECT count(*) FROM sales TABLESAMPLE (100 PERCENT) REPEATABLE (1) s FULL OUTER JOIN item i ON s.item = i.item AND i.gift CROSS JOIN (VALUES (1), (2)) AS v(x)
SELECT window.start, sum(price) FROM (SELECT CAST(day AS TIMESTAMP) AS t, price FROM sales) GROUP BY window(t, '10 days') ORDER BY 1
SELECT transform(tags, x -> x + 1), aggregate(tags, 0L, (a, x) -> a + x), filter(tags, x -> x % 2 = 0), exists(tags, x -> x = 3), map_from_arrays(tags, tags), named_struct('a', item).a FROM item ORDER BY item
FROM sales |> WHERE store = 1 |> AGGREGATE sum(price) AS p, count(*) AS n GROUP BY item |> EXTEND p / n AS mean |> ORDER BY item |> LIMIT 3
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r
SELECT input_file_name() LIKE '%sales%', _metadata.file_name IS NOT NULL FROM sales LIMIT 1

# functions
SELECT upper('a'), 1 + 1, 'it''s' || "x", r'\d', X'1F', DATE '2026-01-01' + INTERVAL 1 MONTH, TIMESTAMP '2026-01-01 00:00:00 UTC', 1e3, 1.5BD, 2Y, NULL <=> NULL, array(1, 2)[0], map('a', 1)['a']
SELECT from_json('{"a": 1}', 'a INT').a, to_json(named_struct('a', 1)), get_json_object('{"b": [1]}', '$.b[0]'), schema_of_json('[1]'), from_csv('1,2', 'a INT, b INT').b
SELECT date_format(DATE '2026-01-01', 'yyyy'), datediff(DATE '2026-01-03', DATE '2026-01-01'), date_trunc('month', TIMESTAMP '2026-01-15 00:00:00'), make_date(2026, 1, 2), unix_timestamp('2026-01-01', 'yyyy-MM-dd')
SELECT regexp_replace('abc', '(b)', '[$1]'), regexp_extract_all('a1b2', '\\d', 0), split('a,b', ','), format_string('%d-%s', 1, 'x'), levenshtein('a', 'b'), md5('a'), hash(1, 'a'), try_cast('x' AS INT), nvl(NULL, 1), decode(1, 1, 'one', 'other')
SELECT a, b FROM VALUES (1, 'x'), (2, NULL) AS t(a, b) WHERE b IS NOT NULL OR a IN (2, 3) ORDER BY a DESC NULLS LAST
SELECT explode(sequence(1, 3)), 'k'
SELECT * FROM explode(array(1, 2)) AS t(x) JOIN range(3) r ON r.id = t.x ORDER BY x
SELECT stack(2, 1, 'a', 2, 'b') AS (n, s)
SELECT parse_json('{"a": [1, 2]}'):a[1]::INT, variant_get(parse_json('1'), '$', 'int')
SELECT collate('a', 'UTF8_LCASE') = 'A', 'x' COLLATE UNICODE_CI = 'X'
SELECT 1 / 0
SELECT CAST('x' AS INT)
SELECT nope(1)
SELECT upper(1, 2, 3)
SELECT a FROM (SELECT 1 AS b)
SELECT table_changes
SELECT 'OPTIMIZE t', `VACUUM` FROM (SELECT 1 AS `VACUUM`)

# tables of files
CREATE TABLE q (id INT COMMENT 'k', s STRING DEFAULT 'd') USING parquet PARTITIONED BY (s) COMMENT 'c' TBLPROPERTIES ('a' = 'b')
INSERT INTO q VALUES (1, 'a'), (2, DEFAULT)
INSERT INTO q PARTITION (s = 'z') SELECT 3
INSERT OVERWRITE q PARTITION (s = 'a') VALUES (9)
SELECT * FROM q ORDER BY id
DESCRIBE q
DESCRIBE EXTENDED q s
SHOW CREATE TABLE q
SHOW PARTITIONS q
SHOW TBLPROPERTIES q
SHOW COLUMNS IN q
ALTER TABLE q ADD COLUMNS (x INT)
ALTER TABLE q ADD PARTITION (s = 'new')
ALTER TABLE q DROP IF EXISTS PARTITION (s = 'new')
ALTER TABLE q SET TBLPROPERTIES ('k' = 'v')
ALTER TABLE q UNSET TBLPROPERTIES ('k')
ALTER TABLE q ALTER COLUMN id COMMENT 'other'
ALTER TABLE q RENAME TO q2
ALTER TABLE q2 RENAME COLUMN id TO k
ALTER TABLE q2 DROP COLUMN id
ALTER TABLE q2 ADD CONSTRAINT c CHECK (id > 0)
ALTER TABLE q2 DROP CONSTRAINT c
MSCK REPAIR TABLE q2
REFRESH TABLE q2
ANALYZE TABLE q2 COMPUTE STATISTICS FOR ALL COLUMNS
COMMENT ON TABLE q2 IS 'new'
TRUNCATE TABLE q2
DELETE FROM q2 WHERE id = 1
UPDATE q2 SET id = 1
MERGE INTO q2 USING (SELECT 1 AS id) x ON q2.id = x.id WHEN MATCHED THEN DELETE
CREATE TABLE c USING csv OPTIONS (header 'true') AS SELECT 1 AS a, 'x' AS b
SELECT * FROM c
CREATE TABLE j USING json LOCATION '$W/j' AS SELECT 1 AS a
SELECT * FROM json.`$W/j`
SELECT * FROM parquet.`$W/nowhere`
SELECT * FROM csv.`$W/db/c`
CREATE TABLE l LIKE c
CREATE TABLE IF NOT EXISTS l (other INT) USING json
CREATE TABLE l (other INT) USING json
CREATE OR REPLACE TABLE l (other INT) USING json
REPLACE TABLE l USING parquet AS SELECT 1 AS a
CREATE TABLE b (id INT, s STRING) USING parquet CLUSTERED BY (id) SORTED BY (s) INTO 2 BUCKETS
CREATE TABLE bad (id INT) USING nonsense
CREATE TABLE bad (id INT, ID INT) USING parquet
CREATE TABLE bad (g INT GENERATED ALWAYS AS (1)) USING parquet
CREATE TABLE bad (id INT) USING parquet CLUSTER BY (id)
CREATE TABLE hive (id INT) STORED AS PARQUET
SELECT * FROM c VERSION AS OF 1
SELECT * FROM c TIMESTAMP AS OF '2026-01-01'
DROP TABLE c
DROP TABLE c
DROP TABLE IF EXISTS c
SHOW TABLES LIKE 'q*'
SHOW TABLE EXTENDED LIKE 'l'
CREATE TEMP VIEW path AS SELECT * FROM parquet.`$W/db/q2`
INSERT OVERWRITE DIRECTORY '$W/out' USING json SELECT 1 AS a
SELECT * FROM json.`$W/out`

# names and settings
SHOW DATABASES LIKE 'nothing'
CREATE DATABASE $D_other COMMENT 'x' WITH DBPROPERTIES ('a' = 'b')
spark.sql("DESCRIBE DATABASE $D_other").count()
USE $D_other
SELECT current_schema(), current_catalog(), current_database()
CREATE TABLE a USING parquet AS SELECT 1 AS x
USE $D
SELECT * FROM $D_other.a
SELECT * FROM spark_catalog.$D_other.a
SELECT a.x FROM $D_other.a
DROP DATABASE $D_other
DROP DATABASE $D_other CASCADE
USE nowhere
USE CATALOG spark_catalog
SHOW CATALOGS
SET spark.sql.shuffle.partitions
SET spark.sql.ansi.enabled = false
SELECT CAST('x' AS INT), 1 / 0
RESET spark.sql.ansi.enabled
SET my.own = 1
SET TIME ZONE 'Europe/Rome'
SELECT TIMESTAMP '2026-07-01 00:00:00'
SET TIME ZONE LOCAL
SET -v nothing
RESET my.own
SHOW FUNCTIONS LIKE 'upper'
DESCRIBE FUNCTION upper
CREATE TEMPORARY FUNCTION nothing AS 'no.such.Class'
CREATE FUNCTION area(w DOUBLE, h DOUBLE) RETURNS DOUBLE RETURN w * h
SELECT area(2, 3)
CREATE OR REPLACE TEMPORARY FUNCTION pairs(n INT) RETURNS TABLE (a INT, b INT) RETURN SELECT id, id * 2 FROM range(n)
SELECT * FROM pairs(3) ORDER BY a
DROP FUNCTION area
LIST JAR
SHOW VIEWS

# views and caches
CREATE VIEW v AS SELECT id, id % 2 AS p FROM range(5)
CREATE OR REPLACE VIEW v (a COMMENT 'x', b) COMMENT 'y' TBLPROPERTIES ('k' = 'v') AS SELECT id, id % 3 FROM range(5)
SELECT b, count(*) FROM v GROUP BY b ORDER BY b
DESCRIBE v
SHOW CREATE TABLE v
ALTER VIEW v AS SELECT 1 AS one
ALTER VIEW v SET TBLPROPERTIES ('q' = 'r')
CREATE TEMP VIEW v AS SELECT 'temporary' AS s
SELECT * FROM v
CREATE GLOBAL TEMP VIEW gv AS SELECT 7 AS x
SELECT * FROM global_temp.gv
CACHE TABLE cached AS SELECT id FROM range(3)
SELECT * FROM cached WHERE id > 0 ORDER BY id
CACHE LAZY TABLE v
UNCACHE TABLE cached
CLEAR CACHE
DROP VIEW global_temp.gv
DROP VIEW v
INSERT INTO v VALUES (1)
DELETE FROM v
CREATE VIEW w AS SELECT * FROM nowhere
CREATE TEMP VIEW history AS SELECT 1 AS id
DESCRIBE history
DESC history
DESCRIBE QUERY SELECT 1 AS a
DROP VIEW history

# variables and dynamic SQL
DECLARE VARIABLE x INT DEFAULT 5
SET VAR x = x + 1
SELECT x, session.x
DECLARE OR REPLACE y = 'a;b'
SET VARIABLE (x, y) = (SELECT 7, 'c')
SELECT x, y
EXECUTE IMMEDIATE 'SELECT :a + x AS s' USING 3 AS a
EXECUTE IMMEDIATE 'SELECT ? || y' INTO y USING 'z'
SELECT y
EXECUTE IMMEDIATE 'SELEC 1'
SELECT * FROM IDENTIFIER('range')(2)
SELECT IDENTIFIER('up' || 'per')('q')
DROP TEMPORARY VARIABLE x
SELECT x
spark.sql("SELECT :a AS a, :b AS b", args={"a": "it's `;", "b": 2})
spark.sql("SELECT ? AS a, ? AS b", args=["-- x", None])
spark.sql("SELECT :a", args={"b": 1})
spark.sql("SELECT * FROM {r} WHERE id < {n}", r=spark.range(3), n=2)

# scripts
SET spark.sql.scripting.enabled = true
BEGIN SELECT 1; SELECT 2 AS two; END
BEGIN
  DECLARE n INT DEFAULT 0;
  WHILE n < 3 DO SET n = n + 1; END WHILE;
  IF n = 3 THEN SELECT 'three' AS s; ELSE SELECT 'other' AS s; END IF;
  END
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION SELECT 'caught' AS s;
  SELECT 1 / 0;
  END
BEGIN SELECT 1 / 0; END
BEGIN FOR r AS SELECT id FROM range(2) DO SELECT r.id; END FOR; END
BEGIN SELECT 1
RESET spark.sql.scripting.enabled

# explained
EXPLAIN SELECT 1
EXPLAIN FORMATTED SELECT id + 1 FROM range(3) WHERE id > 1
EXPLAIN CODEGEN SELECT 1
EXPLAIN COST SELECT * FROM range(3)
EXPLAIN INSERT INTO nowhere VALUES (1)
EXPLAIN CREATE TABLE q USING parquet AS SELECT 1 AS a

# words of ours that are not ours
CREATE TEMP VIEW optimize AS SELECT 1 AS restore, 2 AS vacuum
SELECT restore AS clone, vacuum constraint FROM optimize
SELECT optimize.restore FROM optimize -- VACUUM
/* OPTIMIZE t */ SELECT 'VACUUM t' -- RESTORE
SELECT 1 AS `table_changes`, 'table_changes(1)'
CREATE TABLE clone (constraint INT, feature STRING) USING parquet
ALTER TABLE clone ADD COLUMNS (check INT)
INSERT INTO clone (feature, constraint) VALUES ('CLONE', 1)
SELECT * FROM clone
ALTER TABLE clone SET TBLPROPERTIES ('CONSTRAINT' = 'FEATURE')
CREATE OR REPLACE TEMP VIEW shallow AS SELECT 'SHALLOW CLONE' AS clone
DROP TABLE clone
CREATE TABLE delta (id INT) USING parquet
SELECT * FROM delta
SELECT delta.id FROM delta
DESCRIBE delta

# errors
SELEC 1
SELECT * FORM t
SELECT (1
SELECT 'open
SELECT `open
SELECT 1 /* open
SELECT 1; SELECT 2
SELECT 1;
;

SELECT * FROM nowhere
SELECT * FROM no.where.at.all
SELECT id FROM range(3) WHERE nope > 1
SELECT sum(id), id FROM range(3)
SELECT * FROM range(2) a JOIN range(2) b ON a.id = b.nope
SELECT * FROM (SELECT 1 AS a) UNION SELECT 1, 2
SELECT id FROM range(2) ORDER BY nope
INSERT INTO nowhere VALUES (1)
DROP TABLE nowhere
ALTER TABLE nowhere ADD COLUMN a INT
DESCRIBE nowhere
SHOW COLUMNS IN nowhere
UPDATE nowhere SET a = 1
DELETE FROM nowhere
TRUNCATE TABLE nowhere
MERGE INTO nowhere USING range(3) x ON nowhere.id = x.id WHEN MATCHED THEN DELETE
CREATE TABLE bad (id NONSENSE) USING parquet
CACHE TABLE nowhere
SELECT * FROM table_valued(1)
SELECT raise_error('mine')
SELECT assert_true(false)
spark.table("nowhere")
spark.read.parquet("$W/nowhere")
spark.read.format("nonsense").load("$W")
spark.range(3).selectExpr("nope")
spark.range(3).filter("id >")
