"""Delta tables, without Spark: the log, snapshots, deletion vectors, reads and commits.

The sub-packages, each importing only those above it:

- `schema`: types, metadata, protocol, table features and properties
- `skipping`: predicates, statistics, and which files they rule out
- `log`: the files of `_delta_log`: replay, snapshots, checkpoints, history
- `read`: the live rows of a version with Arrow, and the change data feed
- `write`: a change, its commit, conflicts with concurrent commits, the report
- `alter`, `vacuum`, `maintain`, `check`, `traces`: commands that need no row by Spark
- `table`: `DeltaTable`, the public class; it calls `delvec.spark` for rows
"""
