"""SQL by its words: clauses, statements outside of Spark's grammar, and `delvec.sql`."""
