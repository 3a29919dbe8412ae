"""The action for each data file that makes the target equal to the source.

One function for full and incremental conversions: given all files it repairs any target, given the
files that some commits touched its cost grows with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from delvec.conversion.planning.target_files import TargetFiles

__all__ = ["ACTIONS", "Action", "Difference", "differ"]

Action: TypeAlias = Literal["add", "remove", "keep", "vector-add", "vector-replace", "vector-drop"]
ACTIONS: Final[tuple[Action, ...]] = (
    "add",
    "remove",
    "keep",
    "vector-add",
    "vector-replace",
    "vector-drop",
)
_ADD, _REMOVE, _KEEP, _VECTOR_ADD, _VECTOR_REPLACE, _VECTOR_DROP = range(len(ACTIONS))


@dataclass(frozen=True, eq=False)
class Difference:
    """The actions for files of the source, and the files of the target to remove.

    Attributes:
        codes: For each file of the source, the index of its action in `ACTIONS`.
        places: For each file of the source, its index among the target's files; -1 for a new one.
        gone: Indexes of the target's files that the source does not have.
    """

    codes: NDArray[np.int8]
    places: NDArray[np.int64]
    gone: NDArray[np.int64]

    @property
    def added(self) -> NDArray[np.int64]:
        """Indexes of the source's files that are new in the target."""
        return np.flatnonzero(self.codes == _ADD)

    @property
    def new_vectors(self) -> NDArray[np.int64]:
        """Indexes of the source's files that the target has and that get a new vector."""
        return np.flatnonzero((self.codes == _VECTOR_ADD) | (self.codes == _VECTOR_REPLACE))

    @property
    def old_vectors(self) -> NDArray[np.int64]:
        """Indexes of the target's files that stay while their vector is removed."""
        stale = (self.codes == _VECTOR_REPLACE) | (self.codes == _VECTOR_DROP)
        places: NDArray[np.int64] = self.places[stale]
        return places

    def count(self, action: Action) -> int:
        """Return the number of files with an action."""
        if action == "remove":
            return len(self.gone)
        return int((self.codes == ACTIONS.index(action)).sum())


def differ(
    paths: pa.Array, has_vector: NDArray[np.bool_], ids: Sequence[pa.Array], target: TargetFiles
) -> Difference:
    """Compare files by path and vector.

    Args:
        paths: The files of the source, by their paths in the target; each once.
        has_vector: Which of them have a vector.
        ids: The ids that their vectors may have in the target, a column for each form of id; one
            equal id suffices.
        target: The target's files among these, or all of its files.

    Raises:
        PlanError: A path occurs twice, and so would its rows.
    """
    for whose, files in (("source", paths), ("target", target.paths)):
        counts = pc.value_counts(files)
        twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
        if len(twice):
            raise PlanError(
                f"the {whose} has a data file twice: {twice[0]['values'].as_py()}",
                hint="let the engine that wrote it repair the table",
            )
    at = pc.index_in(paths, value_set=target.paths)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    there = places >= 0
    had = np.zeros(len(paths), dtype=np.bool_)
    had[there] = target.keys.is_valid().to_numpy(zero_copy_only=False)[places[there]]
    equal = _equal(ids, target.ids.take(pa.array(places, mask=~there)))
    codes = np.full(len(paths), _ADD, dtype=np.int8)
    codes[there & has_vector & had] = _VECTOR_REPLACE
    codes[there & has_vector & had & equal] = _KEEP
    codes[there & has_vector & ~had] = _VECTOR_ADD
    codes[there & ~has_vector & had] = _VECTOR_DROP
    codes[there & ~has_vector & ~had] = _KEEP
    gone = np.ones(len(target), dtype=np.bool_)
    gone[places[there]] = False
    return Difference(codes, places, np.flatnonzero(gone))


def _equal(ids: Sequence[pa.Array], found: pa.Array) -> NDArray[np.bool_]:
    """Tell where one of the ids is the one that was found."""
    equal = np.zeros(len(found), dtype=np.bool_)
    for column in ids:
        equal |= pc.fill_null(pc.equal(column, found), False).to_numpy(zero_copy_only=False)
    return equal
