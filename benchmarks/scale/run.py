"""Making the tables of some sizes and measuring all operations on them."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final, get_args

from tests.s3.server import find_server, running_server

from benchmarks.scale.delta_log import Form, Shape, write_delta_table
from benchmarks.scale.delta_operations import ALL_ENTRIES, DELTA_OPERATIONS
from benchmarks.scale.iceberg_metadata import IcebergShape, write_iceberg_table
from benchmarks.scale.measure import S3_OPTIONS, measured
from benchmarks.scale.spark_operations import SPARK_OPERATIONS, is_iceberg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["HEAPS", "measure_on_s3", "measure_on_spark", "measure_without_jvm", "scratch"]

HEAPS: Final = ("1g", "2g", "4g", "6g")
"""Heaps that are tried, smallest first."""

_IN_ALL_FORMS: Final = ("plan by bounds",)
# A JVM that ended for want of memory does not answer any more.
_NO_MEMORY: Final = ("OutOfMemory", "heap space", "GC overhead", "Py4JNetwork", "Connection")
_PART: Final = 100_000
_MOST_ENTRIES: Final = 1_000_000  # of ten times as many, the entries alone take 15 GB

Run = dict[str, Any]


def delta_table(folder: Path, files: int, form: Form) -> Path:
    """Make a table, unless it is there already."""
    path = folder / f"delta-{form}-{files}"
    if not path.exists():
        made = path.with_name(f"{path.name}-unfinished")
        shutil.rmtree(made, ignore_errors=True)
        write_delta_table(made, Shape(files, form, part=_PART))
        made.rename(path)
    return path


def iceberg_table(folder: Path, files: int) -> Path:
    """Make a table in the catalog of the warehouse `folder/warehouse`, unless it is there."""
    path = folder / "warehouse" / "scale" / f"files{files}"
    if not path.exists():
        write_iceberg_table(path, IcebergShape(files))
    return path


def scratch(folder: Path) -> Path:
    """Return a folder for copies; several runs may share the tables."""
    return folder / f"scratch-{os.getpid()}"


def copied(table: Path, place: Path) -> Path:
    """Copy a table by links, so that what an operation commits does not stay."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(table, place / "table", copy_function=os.link)
    return place / "table"


def measure_without_jvm(
    folder: Path,
    sizes: Sequence[int],
    name: str,
    most_memory: int | None,
    say: Callable[[str], None],
) -> Iterator[Run]:
    """Measure operations on a checkpoint in parts, and one on the other forms."""
    for files in sizes:
        for form in get_args(Form):
            for operation in DELTA_OPERATIONS if form == "parts" else _IN_ALL_FORMS:
                if name in operation and not (operation == ALL_ENTRIES and files > _MOST_ENTRIES):
                    table = copied(delta_table(folder, files, form), scratch(folder))
                    found = measured(operation, str(table), most_memory=most_memory)
                    say(f"{form} {files} {json.dumps(found)}")
                    yield {**found, "form": form, "files": files}


def measure_on_s3(
    folder: Path, sizes: Sequence[int], name: str, say: Callable[[str], None]
) -> Iterator[Run]:
    """Count the requests of operations on an S3 server on loopback."""
    program = find_server()
    if program is None:
        say("no S3 server: `make s3-server` builds one")
        return
    for files in sizes:
        for operation in DELTA_OPERATIONS:
            if name in operation:
                found = _on_s3(program, folder, files, operation)
                say(f"s3 {files} {json.dumps(found)}")
                yield {**found, "form": "s3", "files": files}


def _on_s3(program: str, folder: Path, files: int, operation: str) -> Run:
    place = scratch(folder) / "s3"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with running_server(program, place) as server:
        copied(delta_table(folder, files, "parts"), server.folder / "lake")
        os.environ[S3_OPTIONS] = json.dumps(server.storage_options)
        return measured(operation, "s3://lake/table")


def measure_on_spark(
    folder: Path, sizes: Sequence[int], name: str, say: Callable[[str], None]
) -> Iterator[Run]:
    """Measure operations that need a JVM, with the smallest heap that suffices."""
    for files in sizes:
        for operation in SPARK_OPERATIONS:
            if name not in operation:
                continue
            for heap in HEAPS:
                if is_iceberg(operation):
                    table = iceberg_table(folder, files)
                else:
                    table = copied(delta_table(folder, files, "parts"), scratch(folder))
                found = measured(operation, str(table), heap=heap)
                say(f"spark {files} {json.dumps(found)}")
                if "failed" in found and not lacks_memory(found):
                    raise RuntimeError(f"{operation}: {found['failed']}")
                if "failed" not in found:
                    break
            yield {**found, "form": "spark", "files": files}


def lacks_memory(found: Run) -> bool:
    """Tell whether a run has failed for want of memory, so that a larger heap may help."""
    return any(word in found.get("failed", "") for word in _NO_MEMORY)
