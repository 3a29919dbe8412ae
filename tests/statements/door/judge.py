"""delta-spark as the judge: the same steps by both engines, and what they differ in."""

from __future__ import annotations

import json
import re
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

# delta-spark puts its own between the words of a constraint; delvec leaves the user's.
_BLANKS = re.compile(r"/\*.*?\*/|--[^\n]*|\s", re.DOTALL)
_OWN_PROPERTIES = ("delta.enableDeletionVectors", "delta.columnMapping.maxColumnId")


@dataclass(frozen=True)
class Child:
    """An engine in a process of its own, see `engine`."""

    process: Popen[str]

    def begin(self, **case: Any) -> None:  # noqa: ANN401
        """Let it carry out a case."""
        self._to.write(json.dumps(case) + "\n")
        self._to.flush()

    def ended(self) -> list[Any]:
        """Wait until it has; return what came of each step."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the engine has died"
        found: list[Any] = json.loads(line)
        return found

    @property
    def _to(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin


@contextmanager
def open_child(
    engine: str, warehouse: Path, conf: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Start an engine in a process of its own."""
    settings = json.dumps({"spark.sql.warehouse.dir": str(warehouse), **(conf or {})})
    command = [sys.executable, "-m", "tests.statements.door.engine", engine, settings]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Child(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


@dataclass(frozen=True)
class Judge:
    """Both engines: delta-spark in a session, delvec in a child that has its own JVM."""

    spark: SparkSession
    child: Child
    folder: Path

    def differences(self, name: str, case: Case) -> list[str]:
        """Carry out the steps of a case by both, and tell what differs."""
        theirs, ours = (self.folder / engine / name for engine in ("delta-spark", "delvec"))
        for each in (theirs, ours):
            each.mkdir(parents=True)
        self.child.begin(name=name, folder=str(ours), steps=case.steps)
        expected = perform(self.spark, name, str(theirs), case.expected)
        return compare(case.steps, expected, self.child.ended(), tables(theirs), tables(ours))


@contextmanager
def open_judge(spark: SparkSession, folder: Path) -> Iterator[Judge]:
    """Start the child; delta-spark's session has its settings in the meantime."""
    settings = {key: SETTINGS[key] for key in SETTINGS if "sql.codegen.w" in key}
    with open_child("delvec", folder / "warehouse") as child, settings_of(spark, settings):
        yield Judge(spark, child, folder)


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


def tables(folder: Path) -> dict[str, dict[str, Any]]:
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
                key: _BLANKS.sub("", value) if key.startswith("delta.constraints.") else value
                for key, value in metadata.configuration.items()
                if key not in _OWN_PROPERTIES
            },
            "comment": metadata.description,
            "rows": sorted(repr(tuple(row.values())) for row in rows),
        }
    return found


def _column(field: dict[str, Any]) -> str:
    """Return a column without the names and ids that each engine chooses, in structs as well."""

    def common(pairs: dict[str, Any]) -> dict[str, Any]:
        return {key: pairs[key] for key in pairs if not key.startswith("delta.columnMapping")}

    return json.dumps(json.loads(json.dumps(field), object_hook=common), sort_keys=True)
