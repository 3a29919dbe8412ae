"""Iceberg tables through the library in the session's JVM, for any catalog that Spark knows."""
