"""Conversion of Delta tables to Iceberg tables: plan, apply and follow."""
