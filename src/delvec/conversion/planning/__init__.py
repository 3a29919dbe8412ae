"""Comparing a version of the source with the files of the target: only metadata is read."""
