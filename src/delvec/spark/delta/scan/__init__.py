"""Reading Delta tables on Spark's own Parquet reader: file index, pruning, deletion vectors."""
