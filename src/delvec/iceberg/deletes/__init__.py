"""Deletes by key and by position on Iceberg tables: what is written, and how it is read.

Deletes by key are ordinary equality-delete files, which every engine reads, or Equality Delete
Vectors (EDV): bitmaps of integer keys in Puffin files, which delvec alone reads.
"""
