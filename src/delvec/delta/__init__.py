"""Delta tables, without Spark: the log, snapshots, deletion vectors, reads and commits.

The sub-packages, each importing only those above it:

- `schema`: types, metadata, protocol, table features and properties
- `pruning`: predicates, and which files they can match by bounds
- `stats`: statistics of data files, in the log and as Arrow columns
- `log`: the files of `_delta_log`: replay, snapshots, checkpoints, history
- `parquet`: data files and their footers
- `read`: the live rows of a version with Arrow, and the change data feed
- `write`: a change, its commit, conflicts with concurrent commits, the report
- `alter`: the definition of a table: create, replace, alter
- `table`: `DeltaTable`, the public class; it calls `delvec.spark` for rows
"""

from __future__ import annotations
