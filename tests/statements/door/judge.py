"""delta-spark as the judge: the same steps by both engines, and what they differ in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any

from pyspark.sql import SparkSession

from delvec import DeltaTable
from tests.repository import ROOT
from tests.spark.delta.readers import settings_of
from tests.statements.door.cases import Case
from tests.statements.door.engine import SETTINGS, perform

_OWN_PROPERTIES = ("delta.enableDeletionVectors", "delta.columnMapping.maxColumnId")


@dataclass(frozen=True)
class Judge:
    """Both engines: delta-spark in a session, delvec in a child that has its own JVM."""

    spark: SparkSession
    child: Popen[str]
    folder: Path

    def differences(self, name: str, case: Case) -> list[str]:
        """Carry out the steps of a case by both, and tell what differs."""
        theirs, ours = (self.folder / engine / name for engine in ("delta-spark", "delvec"))
        for each in (theirs, ours):
            each.mkdir(parents=True)
        self._to.write(json.dumps({"name": name, "folder": str(ours), "steps": case.steps}) + "\n")
        self._to.flush()
        expected = perform(self.spark, name, str(theirs), case.expected)
        line = self._from.readline()
        assert line, "the child with the open door has died"
        ours_found = json.loads(line)
        return compare(case.steps, expected, ours_found, _tables(theirs), _tables(ours))

    @property
    def _to(self) -> IO[str]:
        assert self.child.stdin is not None
        return self.child.stdin

    @property
    def _from(self) -> IO[str]:
        assert self.child.stdout is not None
        return self.child.stdout


@contextmanager
def open_judge(spark: SparkSession, folder: Path) -> Iterator[Judge]:
    """Start the child; delta-spark's session has its settings in the meantime."""
    command = [sys.executable, "-m", "tests.statements.door.engine", str(folder / "warehouse")]
    with (
        Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT) as child,
        settings_of(spark, {key: SETTINGS[key] for key in SETTINGS if "sql.codegen.w" in key}),
    ):
        try:
            yield Judge(spark, child, folder)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait()


def compare(
    steps: Sequence[str],
    expected: Sequence[dict[str, Any]],
    found: Sequence[dict[str, Any]],
    expected_tables: Mapping[str, Mapping[str, Any]],
    found_tables: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Tell in what the outcomes of steps, and the tables that are left, differ."""
    told = [
        _told(step, _shown(a), _shown(b))
        for step, a, b in zip(steps, expected, found, strict=True)
        if _compared(a) != _compared(b)
    ]
    for place in sorted(expected_tables.keys() | found_tables.keys()):
        a, b = (each.get(place, {}) for each in (expected_tables, found_tables))
        told += [
            _told(f"{what} of {place}", a.get(what), b.get(what))
            for what in ("columns", "partitions", "properties", "comment", "rows")
            if a.get(what) != b.get(what)
        ]
    return told


def _told(what: str, expected: object, found: object) -> str:
    return f"{what}\n  delta-spark: {expected}\n  delvec:      {found}"


def _compared(outcome: dict[str, Any]) -> object:
    """Return what must be the same; of errors, that there is one."""
    return "an error" if "error" in outcome else outcome


def _shown(outcome: dict[str, Any]) -> str:
    if "error" in outcome:
        return f"{outcome['error']}: {outcome['message'][:300]}"
    return str(outcome)


def _tables(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what is in the tables below a folder, read without either engine."""
    found = {}
    for log in sorted(folder.rglob("_delta_log")):
        if not DeltaTable.is_delta_table(log.parent):
            continue  # what a CREATE has left that failed
        table = DeltaTable.for_path(None, log.parent)
        metadata = table.snapshot().metadata
        rows = table.to_arrow().to_pylist()
        found[str(log.parent.relative_to(folder))] = {
            "columns": [_column(each) for each in json.loads(metadata.schema_string)["fields"]],
            "partitions": list(metadata.partition_columns),
            "properties": {
                key: value
                for key, value in metadata.configuration.items()
                if key not in _OWN_PROPERTIES
            },
            "comment": metadata.description,
            "rows": sorted(repr(tuple(row.values())) for row in rows),
        }
    return found


def _column(field: dict[str, Any]) -> str:
    """Return a column without the names and ids that each engine chooses."""
    text = json.dumps(field, sort_keys=True)
    metadata = {
        key: value
        for key, value in field["metadata"].items()
        if not key.startswith("delta.columnMapping")
    }
    return json.dumps({**json.loads(text), "metadata": metadata}, sort_keys=True)
