"""Delta tables on Spark: `scan` reads them, `write` changes them."""
