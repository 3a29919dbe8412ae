"""The door: Delta tables in `spark.sql`, by name and by path, on plain PySpark."""
