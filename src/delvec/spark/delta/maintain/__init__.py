"""Maintenance of Delta tables that reads or writes rows."""
