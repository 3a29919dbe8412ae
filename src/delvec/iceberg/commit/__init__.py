"""How every Iceberg change is committed."""
