"""What tests of writes share: files of a table, what no commit names, and a moment to interfere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from delvec import DeltaTable
from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.vectors import load_vectors
from delvec.delta.write.change import Base, Change, Operation, VectorUpdate
from delvec.delta.write.commit import Committed, commit
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap, Descriptor
from tests.delta.log_files import commits


def files_below(root: Path) -> dict[str, bytes]:
    """Give all files of a table, hidden ones and those of the log too."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def unnamed_files(root: Path) -> set[str]:
    """Give the files outside the log that no commit names, without Hadoop's checksums."""
    named = set()
    for actions in commits(root):
        for action in actions:
            for kind in ("add", "remove", "cdc"):
                body = action.get(kind)
                if body is None:
                    continue
                named.add(unquote(body["path"]))
                if vector := body.get("deletionVector"):
                    named.add(str(Descriptor.from_json(vector).file_path))
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {
        name for name in found - named if not name.startswith("_delta_log/") and name[-4:] != ".crc"
    }


def ids(path: Path, version: int | None = None) -> list[int]:
    """Read the column `id` without a session, sorted."""
    found = DeltaTable.for_path(None, path).to_arrow(columns=["id"], version=version)
    return sorted(found.column("id").to_pylist())


def opened(path: Path) -> Snapshot:
    """Open the newest version without a session."""
    return DeltaTable.for_path(None, path).snapshot()


def put(snapshot: Snapshot, change: Change) -> Committed:
    """Commit a change that was made of a version, or leave nothing of it."""
    with UncommittedFiles(snapshot.storage) as uncommitted:
        uncommitted.add(*(file.path for file in change.moved_to))
        return commit(Base.of(snapshot), change, uncommitted)


def live(snapshot: Snapshot) -> dict[str, FileEntry]:
    """Give the data files of a version by their paths."""
    return {file.path: file for file in snapshot.files.entries()}


def deletion(
    snapshot: Snapshot,
    rows: Mapping[str, Iterable[int]],
    operation: Operation | None = None,
    **more: Any,  # noqa: ANN401
) -> Change:
    """Make a delete of rows of files by hand."""
    files = live(snapshot)
    updates = []
    for path, positions in rows.items():
        file, number = files[path], list(files).index(path)
        [old] = load_vectors(snapshot.storage, snapshot.files.data_files([number]))
        new, count = Bitmap(list(positions)), file.rows
        assert count is not None
        updates.append(VectorUpdate(file, count, new if old is None else old | new))
    return Change(operation or Operation("DELETE"), tuple(updates), **more)


def positions(path: Path, wanted: Iterable[int]) -> dict[str, list[int]]:
    """Find rows by their ids: their places by file."""
    found: dict[str, list[int]] = {}
    chosen = set(wanted)
    for name in live(DeltaTable.for_path(None, path).snapshot()):
        column = pq.read_table(path / name, columns=["id"]).column("id").to_pylist()
        if rows := [place for place, value in enumerate(column) if value in chosen]:
            found[name] = rows
    return found


def put_next(path: Path, change: Callable[[Snapshot], Change]) -> None:
    """Commit a change of the newest version by hand, as another writer."""
    snapshot = opened(path)
    put(snapshot, change(snapshot))


def before_commit(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> list[int]:
    """Let other things happen between an operation's work and its commit, once each in order.

    Gives a list that grows by an entry for each commit that was tried.
    """
    import delvec.delta.write.transaction as running  # noqa: PLC0415 - processes without Spark start sooner

    waiting = list(actions)
    tried: list[int] = []
    within = [False]  # the commits that such things make are not meant

    def interrupted(*arguments: Any) -> Any:  # noqa: ANN401
        if within[0]:
            return commit(*arguments)
        tried.append(len(tried))
        if waiting:
            within[0] = True
            waiting.pop(0)()
            within[0] = False
        return commit(*arguments)

    monkeypatch.setattr(running, "commit", interrupted)
    return tried
