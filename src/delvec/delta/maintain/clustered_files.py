"""Which files OPTIMIZE of a clustered table orders: those that are in no cube yet.

The files that one OPTIMIZE writes are a cube: within it, rows are in the order of the clustering
columns. Tags name the cube of a file and the columns of its order, as delta-spark's tags do, so
that each of the two goes on where the other has stopped.

New files are ordered together with cubes that are not larger than what is ordered anyway: so a row
is written again only when its cube at least doubles, and there are few cubes of any size. Reads the
entries of all live files, some kilobytes each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileSet
from delvec.delta.maintain.compaction import CompactionRule, live_bytes, mostly_deleted
from delvec.inspection.figures import Rewritten

_PROVIDER: Final = "liquid"
_CUBE: Final = "ZCUBE_ID"
_COLUMNS: Final = "ZCUBE_ZORDER_BY"


def new_cube(columns: Sequence[str]) -> dict[str, Any]:
    """Return what the entries of the files of a new cube say of it."""
    tags = {_CUBE: str(uuid4()), _COLUMNS: _text(columns)}
    return {"tags": tags, "clusteringProvider": _PROVIDER}


def files_to_cluster(
    files: FileSet, columns: Sequence[str], rule: CompactionRule, *, full: bool = False
) -> NDArray[np.int64]:
    """Return the numbers of the files to order by columns.

    Files that are in the order of other columns stay, unless they are all to be ordered again.
    """
    sizes, deleted = live_bytes(files), mostly_deleted(files, rule.max_deleted_ratio)
    cubes: dict[str, list[int]] = {}
    chosen: list[int] = []
    for number, entry in enumerate(files.entries()):
        cube, order = _cube_of(entry.add)
        if cube is None or deleted[number] or (full and order != _text(columns)):
            chosen.append(number)
        elif order == _text(columns):
            cubes.setdefault(cube, []).append(number)
    total = int(sizes[chosen].sum())
    by_size = sorted((int(sizes[members].sum()), members) for members in cubes.values())
    for size, members in by_size if chosen else ():
        if size > total:
            break
        chosen += members
        total += size
    return np.array(sorted(chosen), dtype=np.int64)


def clustering_sums(
    files: FileSet, rule: CompactionRule, columns: Sequence[str]
) -> tuple[Rewritten, int]:
    """Return what `files_to_cluster` would replace, and about how many files it would write."""
    chosen = files_to_cluster(files, columns, rule)
    left = int(live_bytes(files)[chosen].sum())
    replaced = Rewritten(len(chosen), int(files.sizes[chosen].sum()), left)
    return replaced, -(-left // rule.target_size)


def _cube_of(add: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the cube of a file and the columns of its order; None for a file that is in none."""
    tags = add.get("tags") or {}
    is_clustered = add.get("clusteringProvider") == _PROVIDER and _COLUMNS in tags
    return (tags.get(_CUBE), tags[_COLUMNS]) if is_clustered else (None, None)


def _text(columns: Sequence[str]) -> str:
    return json.dumps(list(columns), separators=(",", ":"), ensure_ascii=False)
