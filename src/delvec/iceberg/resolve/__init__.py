"""Resolving equality deletes: deleted keys become deletion vectors of the rows that have them."""
