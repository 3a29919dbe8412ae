"""Checking a snapshot: its files, and that its deletes are what the manifests say.

Data files are looked for and not opened. All deletes by key and all deletion vectors are read, by
the driver, with bounded memory.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from delvec.documents import parse_json
from delvec.iceberg.client.delete_files import equality_deletes
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.commits.lock_state import is_lock_tag
from delvec.iceberg.commits.marks import is_staging
from delvec.iceberg.maintain.check_files import check_files
from delvec.iceberg.maintain.check_keys import check_keys, companions_of
from delvec.iceberg.maintain.check_positions import check_vectors
from delvec.iceberg.maintain.check_report import CheckReport
from delvec.iceberg.maintain.data_sequences import data_sequences, is_global
from delvec.report.figures import counted
from delvec.report.findings import Finding, Findings
from delvec.report.phases import Stopwatch
from delvec.report.wordings import call, worded
from delvec.spark.interrupts import interruptible
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["check"]

_DANGLING: Final = "dangling-deletes"


def check(table: LoadedTable, snapshot_id: int | None, branch: str | None) -> CheckReport:
    """Check a snapshot.

    One HEAD request for each data file and each delete file; equality deletes and deletion vectors
    are read. The driver holds about 1 kB for each equality delete.

    Args:
        table: The table.
        snapshot_id: The snapshot; None for a table without any.
        branch: The branch whose newest snapshot it is; None if it is named by its id.
    """
    name, watch, findings = str(table.name), Stopwatch(), Findings()
    if snapshot_id is None:
        return CheckReport(name, branch)
    storage = open_storage(table.spark, local_path(table.metadata.location))
    with interruptible(table.spark), described(table.spark, f"check of {name}"):
        with explained(name):
            live = snapshot_table(table, "entries", snapshot_id).where("status < 2")
        with watch.phase("files"):
            files = check_files(live, storage, name, findings)
        vectors = 0
        if files.has_vectors:
            with watch.phase("deletion vectors"):
                vectors = check_vectors(live, storage, name, files.unusable, findings)
        with watch.phase("equality deletes"):
            deletes = equality_deletes(table, snapshot_id)
            companions = companions_of(table, deletes)
            if deletes:
                staging = _is_staging(table.metadata, snapshot_id, branch)
                check_keys(
                    table,
                    storage,
                    deletes,
                    companions,
                    files.unusable,
                    findings,
                    staging=staging,
                )
                _check_scopes(table, snapshot_id, deletes, findings)
    key_vectors = sum(each.is_vector for each in deletes)
    return CheckReport(
        name,
        branch,
        snapshot_id,
        data_files=files.data,
        delete_files=files.deletes,
        equality_deletes=len(deletes) - key_vectors,
        vectors=key_vectors,
        deletion_vectors=vectors,
        companions=len(companions),
        outside_files=files.outside,
        outside=files.first_outside,
        phases=watch.seconds,
        **findings.fields,
    )


def _is_staging(metadata: TableMetadata, snapshot_id: int, branch: str | None) -> bool:
    """Tell whether a snapshot may have equality delete vectors."""
    if branch is not None:
        return is_staging(metadata, branch)
    refs = {
        name: is_staging(metadata, name)
        for name in metadata.refs
        if not is_lock_tag(metadata, name)
        and any(each.id == snapshot_id for each in metadata.ancestors(name))
    }
    return bool(refs) and all(refs.values())


def _check_scopes(
    table: LoadedTable,
    snapshot_id: int,
    deletes: Sequence[EqualityDeleteFile],
    findings: Findings,
) -> None:
    """Find deletes that apply to no data file."""
    sequences = data_sequences(table, snapshot_id, deletes)
    dangling = [
        each for each in deletes if not bisect_left(sequences.of(each), each.sequence_number)
    ]
    odd = [each for each in dangling if not sequences.of(each) and _is_odd(table.metadata, each)]
    for each in odd:
        findings.add(
            Finding(
                "warning",
                "odd-partition",
                each.path,
                f"the delete is for the null partition of partition spec {each.spec_id}, which has"
                " no data file: was it meant for all partitions?",
                worded(
                    "a delete for all partitions needs a partition spec without fields, as {} adds",
                    call("delete_keys"),
                ),
            )
        )
    if len(dangling) > len(odd):
        first = next(each for each in dangling if each not in odd)
        many = counted(len(dangling) - len(odd), "equality delete")
        findings.add(
            Finding(
                "info",
                _DANGLING,
                first.path,
                f"{many}, such as this one, apply to no data file",
                worded("{} removes them", call("consolidate_deletes")),
            )
        )


def _is_odd(metadata: TableMetadata, delete: EqualityDeleteFile) -> bool:
    """Tell whether a delete is of one partition, and all of its values are null."""
    values = parse_json(delete.partition_json, "the partition of a delete file", path=delete.path)
    return not is_global(metadata, delete.spec_id) and all(each is None for each in values)
