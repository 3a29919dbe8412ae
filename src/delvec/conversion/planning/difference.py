"""What has to happen to each data file, so that the target holds what the source says.

One function for all: given all files it repairs any target, given those that some commits touched
it costs no more than these.
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

    from delvec.conversion.planning.target_files import Holdings

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
    """What happens to files of the source, and which files of the target go.

    Attributes:
        codes: For each file of the source, the place of its action in `ACTIONS`.
        places: For each file of the source, its place in the target's holdings; -1 for a new one.
        gone: Places in the holdings of files that the source does not have.
    """

    codes: NDArray[np.int8]
    places: NDArray[np.int64]
    gone: NDArray[np.int64]

    @property
    def added(self) -> NDArray[np.int64]:
        """Files of the source that the target gets."""
        return np.flatnonzero(self.codes == _ADD)

    @property
    def marked(self) -> NDArray[np.int64]:
        """Files of the source that the target has and that get another vector."""
        return np.flatnonzero((self.codes == _VECTOR_ADD) | (self.codes == _VECTOR_REPLACE))

    @property
    def unmarked(self) -> NDArray[np.int64]:
        """Places in the holdings whose vector goes while their data file stays."""
        stale = (self.codes == _VECTOR_REPLACE) | (self.codes == _VECTOR_DROP)
        places: NDArray[np.int64] = self.places[stale]
        return places

    def count(self, action: Action) -> int:
        """Count the files of an action."""
        if action == "remove":
            return len(self.gone)
        return int((self.codes == ACTIONS.index(action)).sum())


def differ(
    paths: pa.Array, marked: NDArray[np.bool_], names: Sequence[pa.Array], held: Holdings
) -> Difference:
    """Compare by path and vector.

    Args:
        paths: The files of the source as the target names them; each once.
        marked: Which of them have a vector.
        names: What the holdings may call that vector: columns of ids, of which one suffices.
        held: What the target holds of these files, or all that it holds.

    Raises:
        PlanError: A path is there twice: its rows would be, too.
    """
    for whose, files in (("source", paths), ("target", held.paths)):
        counts = pc.value_counts(files)
        twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
        if len(twice):
            raise PlanError(
                f"the {whose} has a data file twice: {twice[0]['values'].as_py()}",
                hint="let the engine that wrote it repair the table",
            )
    at = pc.index_in(paths, value_set=held.paths)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    there = places >= 0
    has = np.zeros(len(paths), dtype=np.bool_)
    has[there] = held.keys.is_valid().to_numpy(zero_copy_only=False)[places[there]]
    equal = _equal(names, held.ids.take(pa.array(places, mask=~there)))
    codes = np.full(len(paths), _ADD, dtype=np.int8)
    codes[there & marked & has] = _VECTOR_REPLACE
    codes[there & marked & has & equal] = _KEEP
    codes[there & marked & ~has] = _VECTOR_ADD
    codes[there & ~marked & has] = _VECTOR_DROP
    codes[there & ~marked & ~has] = _KEEP
    gone = np.ones(len(held), dtype=np.bool_)
    gone[places[there]] = False
    return Difference(codes, places, np.flatnonzero(gone))


def _equal(names: Sequence[pa.Array], held: pa.Array) -> NDArray[np.bool_]:
    """Tell where one of the names is the held one."""
    found = np.zeros(len(held), dtype=np.bool_)
    for column in names:
        found |= pc.fill_null(pc.equal(column, held), False).to_numpy(zero_copy_only=False)
    return found
