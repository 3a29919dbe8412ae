"""A table compared with its log, and repaired."""
