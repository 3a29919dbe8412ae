-- DataFrame writers.

# save with each mode
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).write.format("delta").mode("ignore").save("$W/x")
spark.range(3, 5).write.format("delta").mode("append").save("$W/x")
SELECT * FROM delta.`$W/x` ORDER BY id
spark.range(9, 10).write.format("delta").mode("overwrite").save("$W/x")

# save by partitions
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").mode("append").save("$W/x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").mode("append").save("$W/x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("id").mode("append").save("$W/x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("id").mode("overwrite").save("$W/x")

# save with another schema
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).selectExpr("id", "'a' AS s").write.format("delta").mode("append").save("$W/x")
spark.range(3).selectExpr("id", "'a' AS s").write.format("delta").mode("append").option("mergeSchema", "true").save("$W/x")
spark.range(3).selectExpr("'a' AS s").write.format("delta").mode("append").save("$W/x")
spark.range(3).selectExpr("'q' AS new").write.format("delta").mode("overwrite").save("$W/x")
spark.range(3).selectExpr("'q' AS new").write.format("delta").mode("overwrite").option("overwriteSchema", "true").save("$W/x")

# overwrite with other partitions
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.range(4).selectExpr("id", "'a' AS q").write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("q").save("$W/x")

# overwrite without the partition column
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.range(4).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save("$W/x")

# overwrite that becomes partitioned
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").save("$W/x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("p").save("$W/x")

# overwrite with the schema keeps partitions
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.range(4).selectExpr("CAST(id AS STRING) AS id", "id % 2 AS p").write.format("delta").mode("overwrite").option("overwriteSchema", "true").save("$W/x")

# replaceWhere
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.sql("SELECT 9L AS id, 1L AS p").write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save("$W/x")
spark.sql("SELECT 9L AS id, 0L AS p").write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save("$W/x")
spark.sql("SELECT 10L AS id, 0L AS p").write.format("delta").mode("overwrite").option("replaceWhere", "id >= 9").save("$W/x")
SELECT * FROM delta.`$W/x` ORDER BY id

# partitionOverwriteMode
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.sql("SELECT 9L AS id, 1L AS p").write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save("$W/x")

# partitionOverwriteMode by the session
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save("$W/x")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
spark.sql("SELECT 9L AS id, 1L AS p").write.format("delta").mode("overwrite").save("$W/x")
spark.sql("SELECT 10L AS id, 0L AS p").write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static").save("$W/x")
spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

# userMetadata and transactions
spark.range(2).write.format("delta").option("userMetadata", "first").save("$W/x")
spark.range(2).write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", 1).save("$W/x")
spark.range(2).write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", 1).save("$W/x")
spark.range(2).write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", 2).option("userMetadata", "m").save("$W/x")
spark.sql("DESCRIBE HISTORY delta.`$W/x`").select("version", "operation", "userMetadata")

# saveAsTable with each mode
spark.range(3).write.format("delta").saveAsTable("x")
spark.range(3).write.format("delta").saveAsTable("x")
spark.range(3).write.format("delta").mode("ignore").saveAsTable("x")
spark.range(3, 5).write.format("delta").mode("append").saveAsTable("x")
SELECT * FROM x ORDER BY id
spark.range(7, 9).write.format("delta").mode("overwrite").saveAsTable("x")
spark.range(2).selectExpr("'a' AS s").write.format("delta").mode("overwrite").saveAsTable("x")
spark.range(2).selectExpr("'a' AS s").write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable("x")
spark.sql("DESCRIBE HISTORY x").select("version")

# saveAsTable with another order of columns
spark.range(2).selectExpr("id", "'a' AS s").write.format("delta").saveAsTable("x")
spark.range(2).selectExpr("'b' AS s", "id").write.format("delta").mode("append").saveAsTable("x")

# saveAsTable with a path
spark.range(3).write.format("delta").option("path", "$W/x").saveAsTable("x")
DROP TABLE x
SELECT count(*) FROM delta.`$W/x`

# saveAsTable by partitions
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").saveAsTable("x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").mode("append").partitionBy("p").saveAsTable("x")
spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").saveAsTable("x")
spark.range(4).selectExpr("id", "id % 2 AS p").where("p = 1").write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").saveAsTable("x")

# saveAsTable merges the schema
spark.range(3).write.format("delta").saveAsTable("x")
spark.range(3).selectExpr("id", "1 AS n").write.format("delta").mode("append").saveAsTable("x")
spark.range(3).selectExpr("id", "1 AS n").write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("x")

# insertInto
@T
spark.range(5, 6).selectExpr("id", "1", "'x'").write.insertInto("t")
spark.range(6, 7).selectExpr("'x' AS s", "id", "1 AS v").write.insertInto("t")
spark.range(1).write.insertInto("t")
spark.range(7, 8).selectExpr("id", "1", "'y'").write.insertInto("t", overwrite=True)

# writeTo
spark.range(3).writeTo("x").using("delta").tableProperty("k", "v").create()
spark.range(3).writeTo("x").using("delta").create()
spark.range(3, 5).writeTo("x").append()
spark.range(5, 6).withColumnRenamed("id", "other").writeTo("x").append()
spark.range(6).writeTo("x").using("delta").replace()
spark.range(7).selectExpr("id", "id % 2 AS p").writeTo("x").using("delta").partitionedBy(F.col("p")).createOrReplace()
spark.range(1).selectExpr("100L AS id", "1L AS p").writeTo("x").overwritePartitions()
spark.range(1).selectExpr("200L AS id", "0L AS p").writeTo("x").overwrite(F.col("p") == 0)
spark.range(1).writeTo("none").append()
SELECT * FROM x ORDER BY id

# writers' properties
spark.range(3).write.format("delta").option("delta.appendOnly", "true").save("$W/x")
spark.range(3).write.format("delta").option("delta.appendOnly", "true").option("k", "v").saveAsTable("x")

# writers and nullability
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).selectExpr("id", "1 AS n", "array(1) AS a", "named_struct('x', 1) AS s").write.format("delta").saveAsTable("x")

# writers with a void column
spark.sql("SELECT 1 AS id, NULL AS nothing").write.format("delta").save("$W/x")
SELECT * FROM delta.`$W/x`

# writers and names by case
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).selectExpr("id AS ID").write.format("delta").mode("append").save("$W/x")

# writers with columns of one name
spark.range(3).selectExpr("id", "id AS ID").write.format("delta").save("$W/x")

# writers that read what they overwrite
spark.range(3).write.format("delta").save("$W/x")
spark.read.format("delta").load("$W/x").selectExpr("id + 10 AS id").write.format("delta").mode("overwrite").save("$W/x")
SELECT * FROM delta.`$W/x` ORDER BY id

# streams
spark.range(3).write.format("delta").save("$W/x")
spark.readStream.format("delta").load("$W/x").writeStream.format("delta").option("checkpointLocation", "$W/cp").trigger(availableNow=True).start("$W/y").awaitTermination()
spark.range(3, 5).write.format("delta").mode("append").save("$W/x")
spark.readStream.format("delta").load("$W/x").writeStream.format("delta").option("checkpointLocation", "$W/cp").trigger(availableNow=True).start("$W/y").awaitTermination()
SELECT * FROM delta.`$W/y` ORDER BY id

# streams of tables
@T
spark.readStream.table("t").writeStream.option("checkpointLocation", "$W/cp").trigger(availableNow=True).toTable("u").awaitTermination()
SELECT * FROM u ORDER BY id

# append with another type
! delvec casts exactly what fits, also of strings
spark.range(3).write.format("delta").save("$W/x")
spark.range(3).selectExpr("CAST(id AS STRING) AS id").write.format("delta").mode("append").save("$W/x")
