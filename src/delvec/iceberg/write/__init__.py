"""Appends, upserts and deletes of an Iceberg table."""
