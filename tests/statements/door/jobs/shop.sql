-- A nightly job of a shop: staging, increments, history of dimensions, snapshots, maintenance.
-- $W is a folder of the engine that runs it; what lies there before: nothing.
CREATE DATABASE shop LOCATION '$W/db';
USE shop;

/* Landing: what came in, in two days; a row may come twice; ";" and '--' are in strings. */
CREATE TABLE raw_orders (
  order_id BIGINT NOT NULL, customer STRING COMMENT 'natural key', amount DECIMAL(10, 2), note STRING,
  updated TIMESTAMP_NTZ, day DATE GENERATED ALWAYS AS (CAST(updated AS DATE))
) USING delta PARTITIONED BY (day) COMMENT 'as it came' TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'owner of' = 'it; -- ''all''');

INSERT INTO raw_orders (order_id, customer, amount, note, updated) VALUES
  (1, 'ann', 10.50, 'first', '2026-01-01 08:00:00'), (2, 'bob', 20, 'semi;colon', '2026-01-01 09:00:00'),
  (2, 'bob', 21, 'again -- later', '2026-01-01 10:00:00'), (3, 'eve', NULL, NULL, '2026-01-01 11:00:00'),
  (4, 'dan', 1e2, '/* no comment */', '2026-01-01 12:00:00'), (5, 'Ann', 7.25, 'it''s', '2026-01-01 13:00:00');

ALTER TABLE raw_orders ADD CONSTRAINT amount_is_no_debt CHECK (amount IS NULL OR amount >= 0);

-- Staging: the last state of each order, by a window.
CREATE OR REPLACE TABLE stg_orders USING delta AS
WITH ranked AS (
  SELECT *, row_number() OVER (PARTITION BY order_id ORDER BY updated DESC) AS rank FROM raw_orders
)
SELECT order_id, lower(customer) AS customer, amount, note, updated, day FROM ranked WHERE rank = 1;

SELECT order_id, amount, note FROM stg_orders ORDER BY order_id;

-- The fact table is made once, and then merged into.
CREATE TABLE IF NOT EXISTS fct_orders (
  order_id BIGINT, customer STRING, amount DECIMAL(12, 2), updated TIMESTAMP_NTZ, day DATE,
  band STRING GENERATED ALWAYS AS (CASE WHEN amount >= 20 THEN 'big' ELSE 'small' END),
  loads INT DEFAULT 1
) USING delta PARTITIONED BY (day)
TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', 'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true');

MERGE INTO fct_orders AS t USING stg_orders AS s ON t.order_id = s.order_id
WHEN MATCHED AND s.updated > t.updated THEN UPDATE SET amount = s.amount, updated = s.updated
WHEN NOT MATCHED THEN INSERT (order_id, customer, amount, updated, day) VALUES (s.order_id, s.customer, s.amount, s.updated, s.day);

-- The second day: an update, a correction of an old order, a new one.
INSERT INTO raw_orders (order_id, customer, amount, note, updated) VALUES
  (2, 'bob', 25, 'third time', '2026-01-02 08:00:00'), (6, 'ann', 60, 'new', '2026-01-02 09:00:00'),
  (4, 'dan', 90, 'late, and older', '2026-01-01 11:59:59');

CREATE OR REPLACE TEMPORARY VIEW increment AS
SELECT order_id, customer, amount, updated, day FROM (
  SELECT order_id, lower(customer) AS customer, amount, updated, day,
    row_number() OVER (PARTITION BY order_id ORDER BY updated DESC) AS rank
  FROM raw_orders WHERE updated >= TIMESTAMP_NTZ '2026-01-01 11:30:00'
) WHERE rank = 1;

MERGE INTO fct_orders t USING increment s ON t.order_id = s.order_id
WHEN MATCHED AND s.updated > t.updated THEN UPDATE SET t.amount = s.amount, t.updated = s.updated, t.loads = t.loads + 1
WHEN NOT MATCHED THEN INSERT (order_id, customer, amount, updated, day) VALUES (s.order_id, s.customer, s.amount, s.updated, s.day)
WHEN NOT MATCHED BY SOURCE AND t.amount IS NULL THEN DELETE;

SELECT order_id, customer, amount, band, loads, day FROM fct_orders ORDER BY order_id;

-- A dimension with its history: a changed customer's row is closed, and another opened.
CREATE TABLE dim_customers (
  key STRING GENERATED ALWAYS AS (concat(customer, '@', CAST(valid_from AS STRING))), customer STRING, city STRING,
  valid_from DATE, valid_to DATE, is_current BOOLEAN
) USING delta;

INSERT INTO dim_customers (customer, city, valid_from, valid_to, is_current)
SELECT customer, 'Rome', DATE '2026-01-01', NULL, true FROM (SELECT DISTINCT customer FROM stg_orders);

CREATE OR REPLACE TEMP VIEW moved AS SELECT * FROM VALUES ('ann', 'Oslo'), ('eve', 'Rome'), ('zoe', 'Lima') AS m(customer, city);

MERGE INTO dim_customers d USING (
  SELECT m.customer AS merge_key, m.* FROM moved m
  UNION ALL
  SELECT NULL, m.* FROM moved m JOIN dim_customers c ON m.customer = c.customer AND c.is_current AND m.city <> c.city
) s ON d.customer = s.merge_key AND d.is_current
WHEN MATCHED AND d.city <> s.city THEN UPDATE SET is_current = false, valid_to = DATE '2026-01-02'
WHEN NOT MATCHED THEN INSERT (customer, city, valid_from, valid_to, is_current) VALUES (s.customer, s.city, DATE '2026-01-02', NULL, true);

SELECT customer, city, valid_from, valid_to, is_current FROM dim_customers ORDER BY customer, valid_from;

SELECT o.order_id, d.city FROM fct_orders o JOIN dim_customers d
ON o.customer = d.customer AND o.day >= d.valid_from AND (d.valid_to IS NULL OR o.day < d.valid_to) ORDER BY 1;

-- A snapshot of each day, of which one is made again.
CREATE TABLE snap_orders USING delta PARTITIONED BY (taken) AS
SELECT order_id, amount, DATE '2026-01-01' AS taken FROM fct_orders VERSION AS OF 1;

INSERT INTO snap_orders SELECT order_id, amount, DATE '2026-01-02' FROM fct_orders;

SET spark.sql.sources.partitionOverwriteMode = dynamic;

INSERT OVERWRITE snap_orders SELECT order_id, amount * 2, DATE '2026-01-02' FROM fct_orders WHERE amount IS NOT NULL;

RESET spark.sql.sources.partitionOverwriteMode;

SELECT taken, count(*) AS orders, sum(amount) AS amount FROM snap_orders GROUP BY ROLLUP (taken) ORDER BY taken NULLS FIRST;

-- Deletes of a person, by a subquery of names, and what the table's feed says of them.
DELETE FROM fct_orders WHERE customer IN ('eve', 'dan');

UPDATE fct_orders SET customer = concat('x-', sha1(customer)) WHERE customer = 'bob';

SELECT order_id, _change_type, _commit_version FROM table_changes('fct_orders', 3) ORDER BY _commit_version, order_id, _change_type;

-- Definitions change.
ALTER TABLE fct_orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5');
ALTER TABLE fct_orders ADD COLUMNS (channel STRING COMMENT 'how it came' AFTER customer, `odd name` INT);
ALTER TABLE fct_orders RENAME COLUMN loads TO `times loaded`;
ALTER TABLE fct_orders ALTER COLUMN channel COMMENT 'web or shop';
UPDATE fct_orders SET channel = 'web', `odd name` = `times loaded` * 2 WHERE amount > 20;
ALTER TABLE fct_orders DROP COLUMN `odd name`;
ALTER TABLE raw_orders DROP CONSTRAINT IF EXISTS nothing;
COMMENT ON TABLE fct_orders IS 'one row for each order';
DESCRIBE fct_orders;

-- An accident, and the way back.
DELETE FROM dim_customers;
RESTORE TABLE dim_customers TO VERSION AS OF 2;
SELECT count(*) AS customers FROM dim_customers;
CREATE TABLE dim_backup SHALLOW CLONE dim_customers;
INSERT OVERWRITE dim_backup (customer, city, valid_from) SELECT customer, upper(city), valid_from FROM dim_customers WHERE is_current;

-- What has run, with numbers.
CREATE TABLE runs (run BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10), what STRING) USING delta;
INSERT INTO runs (what) VALUES ('load');
INSERT INTO runs (what) VALUES ('history');
SELECT run, what FROM runs ORDER BY run;

-- Maintenance.
OPTIMIZE raw_orders WHERE day = DATE '2026-01-01' ZORDER BY (order_id, customer);
OPTIMIZE snap_orders;
REORG TABLE fct_orders APPLY (PURGE);
SET spark.databricks.delta.retentionDurationCheck.enabled = false;
VACUUM snap_orders RETAIN 0 HOURS;
RESET spark.databricks.delta.retentionDurationCheck.enabled;
DESCRIBE HISTORY snap_orders;
DESCRIBE HISTORY fct_orders LIMIT 3;
SHOW TBLPROPERTIES raw_orders ('owner of');
SHOW PARTITIONS snap_orders;

WITH months AS (SELECT date_trunc('month', day) AS month, amount FROM fct_orders)
SELECT month, count(*) AS n, sum(amount) AS amount, max(amount) FILTER (WHERE amount < 50) AS most FROM months GROUP BY month ORDER BY month;
