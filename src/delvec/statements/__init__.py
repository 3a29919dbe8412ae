"""SQL by its words: clauses, and statements outside of Spark's grammar."""
