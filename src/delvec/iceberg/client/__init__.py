"""Iceberg's Java library, called by catalog name: tables, their metadata and files.

Knows nothing of Delta, and changes no table.
"""
