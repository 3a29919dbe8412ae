"""Maintenance of Delta tables: what is planned and done without reading rows by Spark."""
