"""The names and the short help of all commands, so that `delvec --help` imports none of them."""

from __future__ import annotations

from typing import Final

__all__ = ["COMMANDS", "SECTIONS"]

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Look": {
        "inspect": "Show a table at a glance, and what to run next.",
        "detail": "Show what a table is made of, in figures.",
        "schema": "Show the columns of a table.",
        "properties": "Show the properties of a table; set or unset some.",
        "refs": "Show the branches and tags of an Iceberg table.",
        "history": "Show what was done to a table, newest first.",
        "files": "Show the data files of a table, with deleted rows.",
        "changes": "Show the rows that changed between two versions.",
        "check": "Check that files, vectors and deletes are sound.",
        "traces": "Tell where rows still physically are.",
    },
    "Change rows": {
        "append": "Add rows to a table.",
        "overwrite": "Replace all rows of a table, or some, by others.",
        "delete": "Delete rows of a table.",
        "delete-keys": "Delete the rows that have some keys.",
        "update": "Give rows of a table new values.",
        "merge": "Update, delete and insert rows by those of a source.",
        "restore": "Bring a table back to an earlier version.",
    },
    "Change what a table is": {
        "column": "Add, rename or drop columns.",
        "constraint": "Add or drop CHECK constraints.",
        "feature": "Add table features; enable deletion vectors.",
        "branch": "Make, drop and move branches of an Iceberg table.",
        "tag": "Make and drop tags of an Iceberg table.",
    },
    "Make tables": {
        "create": "Make an empty table.",
        "clone": "Make a table that shares the data files of another.",
        "convert-to-delta": "Make a folder of Parquet files a Delta table.",
        "convert": "Bring an Iceberg table to what a Delta table holds.",
        "clean-target": "Clean up what conversions left in their target.",
    },
    "Maintain Delta tables": {
        "optimize": "Put the small files of a table together.",
        "purge": "Rewrite the files that have deletion vectors.",
        "vacuum": "Delete the files that a table no longer needs.",
        "clean-log": "Delete old commits and checkpoints of a table.",
        "checkpoint": "Write a checkpoint of a table.",
        "recompute-statistics": "Compute statistics that are missing or have wide bounds.",
        "generate-manifest": "Write symlink manifests, for readers without Delta.",
        "downgrade": "Make a table readable without deletion vectors.",
    },
    "Iceberg tables": {
        "upsert": "Write rows in place of those with the same keys.",
        "resolve": "Turn equality deletes into deletion vectors.",
        "index": "Make the primary-key index, for resolve.",
        "consolidate": "Merge small equality deletes into few.",
        "compact": "Rewrite small data files.",
        "expire-snapshots": "Expire snapshots, and delete files only they had.",
        "remove-orphan-files": "Delete files that no snapshot refers to.",
    },
    "Other": {
        "completion": "Print the script for completion by a shell.",
        "demo": "Show what delvec does, step by step.",
    },
}
"""The commands by section, in the order of the help."""

COMMANDS: Final = {name: text for each in SECTIONS.values() for name, text in each.items()}
