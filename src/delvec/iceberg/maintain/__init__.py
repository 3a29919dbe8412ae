"""Maintenance of Iceberg tables: what keeps them small and fast and changes none of their rows."""
