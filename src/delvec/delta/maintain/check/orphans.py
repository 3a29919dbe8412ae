"""Files in a table's folder that nothing in the log refers to: they cost space and nothing else.

Reads the tombstones of the log, and the commits within the retention of removed files. Memory grows
by 8 bytes for each file that the log refers to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from delvec.delta.maintain.check.report import LOG_DAMAGE, log_damage
from delvec.delta.maintain.recent_commits import commits_since, read_commits
from delvec.delta.maintain.references import KeySet, commit_references, references
from delvec.delta.maintain.vacuum.candidates import kind_of, table_of
from delvec.delta.schema.hidden_names import NameRules
from delvec.delta.schema.properties import DELETED_FILE_RETENTION, interval_ms, retention_text
from delvec.report.figures import counted, size
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.check.data_files import TableFolder
    from delvec.report.findings import Findings

__all__ = ["check_orphans", "retention_ms"]

_WEEK: Final = 604_800_000
_BATCH: Final = 10_000


def retention_ms(snapshot: Snapshot) -> int:
    """Return how long removed files are kept; a week if the table's property is no interval."""
    length = interval_ms(retention_text(snapshot.metadata.configuration, DELETED_FILE_RETENTION))
    return _WEEK if length is None or length < 0 else length


def check_orphans(
    snapshot: Snapshot, files: FileSet, folder: TableFolder, findings: Findings
) -> tuple[int, int]:
    """Find orphan files; return how many there are, and their bytes.

    Hidden names and folders of other tables are left alone, as by a vacuum.
    """
    since_ms = int(time.time() * 1000) - retention_ms(snapshot)
    try:
        kept = KeySet(_referred(snapshot, files, since_ms))
    except LOG_DAMAGE as error:
        # What the log refers to cannot be told; other checks say why.
        found = log_damage(error)
        findings.add(replace(found, severity="info", kind="orphans-unknown"))
        return 0, 0
    orphans = _unreferred(snapshot, folder, kept)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index in orphans:
        by_kind[kind_of(folder.keys[index].as_py())].append(index)
    for kind, members in by_kind.items():
        old = sum(int(folder.modified_ms[index]) < since_ms for index in members)
        total = int(folder.sizes[members].sum())
        findings.add(
            Finding(
                "info",
                f"orphan-{kind.replace(' ', '-')}",
                folder.keys[members[0]].as_py(),
                f"nobody refers to {counted(len(members), kind)}, such as this one: {size(total)}",
                worded(
                    "{} removes {} of them now, and others when they are older than the retention:"
                    " they may be those of a write that is still running",
                    call("vacuum"),
                    f"{old:,}",
                ),
            )
        )
    return len(orphans), int(folder.sizes[orphans].sum())


def _referred(snapshot: Snapshot, files: FileSet, since_ms: int) -> Iterator[pa.Array]:
    """Yield the keys of files that live entries, tombstones and recent commits refer to."""
    for each in references(snapshot, files=files):
        yield each.keys
    commits = commits_since(snapshot, since_ms)
    for actions in read_commits(snapshot.storage, commits):
        for each in commit_references(actions, snapshot.table):
            yield each.keys


def _unreferred(snapshot: Snapshot, folder: TableFolder, kept: KeySet) -> list[int]:
    rules = NameRules.of(snapshot.metadata)
    orphans: list[int] = []
    inner: set[str] = set()
    for start in range(0, len(folder.keys), _BATCH):
        keys = folder.keys.slice(start, _BATCH).to_pylist()
        inner |= {table for key in keys if (table := table_of(key)) is not None}
        orphans += [
            start + at
            for at in np.flatnonzero(~kept.contains(keys)).tolist()
            # A folder in a bucket may be listed as an empty file.
            if not rules.is_hidden(keys[at]) and folder.sizes[start + at]
        ]
    within = tuple(f"{each}/" for each in inner)
    return [each for each in orphans if not folder.keys[each].as_py().startswith(within)]
