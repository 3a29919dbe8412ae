"""What happens to each file, held against a model of dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.conversion.planning.step import ACTIONS, Difference, diff_files
from delvec.conversion.planning.target_files import NO_FILES, TargetFiles
from delvec.errors import PlanError

PATHS = [f"file:/t/part-{number}.parquet" for number in range(6)]
# What the target has for a file: None without a vector, else the id, "" for one of unknown origin.
Held = dict[str, "str | None"]
SOURCE = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([None, "u1", "u2", "u3"]))
TARGET = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([None, "", "u1", "u2", "d3"]))


def target_files(held: Mapping[str, str | None]) -> TargetFiles:
    count = len(held)
    return TargetFiles(
        pa.array(list(held), pa.string()),
        np.full(count, 10),
        np.full(count, 100),
        np.array([0 if name is None else 1 for name in held.values()], np.int64),
        pa.array([None if name is None else f"key of {path}" for path, name in held.items()]).cast(
            pa.string()
        ),
        pa.array([name or None for name in held.values()], pa.string()),
        pa.array([], pa.string()),
    )


def difference(source: Mapping[str, str | None], held: Mapping[str, str | None]) -> Difference:
    ids = pa.array(list(source.values()), pa.string())
    other = pa.array([name and name.replace("u", "d") for name in source.values()], pa.string())
    return diff_files(
        pa.array(list(source), pa.string()),
        np.array([name is not None for name in source.values()], np.bool_),
        [ids, other],
        target_files(held),
    )


def chosen(paths: Sequence[str], places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> set[str]:
    return {paths[place] for place in places.tolist()}


@given(SOURCE, TARGET)
def test_the_difference_applied_to_the_target_gives_the_source(
    source: dict[str, str | None], held: dict[str, str | None]
) -> None:
    found = difference(source, held)
    left = dict(held)
    names, kept = list(source), list(held)
    for path in chosen(kept, found.gone):
        del left[path]
    for path in chosen(kept, found.old_vectors):
        assert left[path] is not None
        left[path] = None
    for path in chosen(names, found.new_vectors):
        assert left[path] is None  # one vector for a file, never two
        left[path] = source[path]
    for path in chosen(names, found.added):
        assert path not in left
        left[path] = source[path]
    assert {path: name and name.replace("d", "u") for path, name in left.items()} == source
    counts = {action: found.count(action) for action in ACTIONS}
    assert sum(counts.values()) == len(source) + counts["remove"]
    assert counts["remove"] == len(set(held) - set(source))


def test_each_action_has_its_case() -> None:
    source = dict(zip(PATHS, [None, "u1", None, "u1", "u2", "u3"], strict=True))
    held = {PATHS[1]: "u1", PATHS[2]: "u9", PATHS[3]: None, PATHS[4]: "", PATHS[5]: "d3", "x": None}
    found = difference(source, held)
    expected = ["add", "keep", "vector-drop", "vector-add", "vector-replace", "keep"]
    assert [ACTIONS[code] for code in found.codes] == expected
    assert found.count("remove") == 1


def test_a_path_that_is_there_twice_is_refused() -> None:
    twice = pa.array([PATHS[0], PATHS[0]])
    with pytest.raises(PlanError, match=f"source has a data file twice: {PATHS[0]}"):
        diff_files(twice, np.zeros(2, np.bool_), [], NO_FILES)
    one = target_files({PATHS[1]: None})
    with pytest.raises(PlanError, match=f"target has a data file twice: {PATHS[1]}"):
        diff_files(NO_FILES.paths, np.empty(0, np.bool_), [], one.joined(one))


@given(TARGET, TARGET)
def test_target_files_are_the_same_if_files_and_deletes_are(
    first: dict[str, str | None], second: dict[str, str | None]
) -> None:
    mine, theirs = target_files(first), target_files(second)
    marked = [{path: name is not None for path, name in each.items()} for each in (first, second)]
    assert mine.same_files(theirs) == (marked[0] == marked[1])
    assert len(mine.joined(theirs)) == len(first) + len(second)
    everything = np.ones(len(first), np.bool_)
    assert mine.select(everything).same_files(mine)
    assert len(mine.select(~everything)) == 0
