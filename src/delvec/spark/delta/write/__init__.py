"""DELETE, UPDATE, MERGE and WRITE of Delta tables: rows found by one scan, written by Spark."""
