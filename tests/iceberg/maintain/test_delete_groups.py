"""Which equality deletes can be merged, without a table."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.maintain.delete_groups import DataSequences, DeletePlan, plan_deletes


def delete(
    number: int,
    name: str = "",
    *,
    ids: tuple[int, ...] = (1,),
    partition: str = "[]",
    vector: bool = False,
    size: int = 500,
    keys: int = 3,
) -> EqualityDeleteFile:
    path = f"{name or number}{'-edv.puffin' if vector else '.parquet'}"
    return EqualityDeleteFile(path, "parquet", 0, partition, ids, keys, size, number)


def planned(
    deletes: Sequence[EqualityDeleteFile], data: Sequence[int], *, staging: bool = False
) -> DeletePlan:
    sequences = DataSequences(tuple(sorted(data)))
    return plan_deletes(deletes, sequences, staging=staging, unwritable={})


def merged(plan: DeletePlan) -> list[tuple[list[int], int]]:
    return [
        ([each.sequence_number for each in group.files], group.sequence_number)
        for group in plan.groups
    ]


def test_deletes_are_merged_between_the_sequence_numbers_of_data() -> None:
    plan = planned([delete(number) for number in (7, 3, 4, 5, 6)], [2, 5])
    assert merged(plan) == [([3, 4, 5], 5), ([6, 7], 7)]
    [apart] = plan.apart
    assert apart.deletes == 2
    assert apart.reason.endswith(
        "number 5, to which the delete of 6 applies and that of 5 does not"
    )


MIB = 1 << 20
VECTOR = delete(2, vector=True)
# Deletes, sequence numbers of data, whether the branch is a staging branch; what is merged to what.
MERGED: dict[str, tuple[list[EqualityDeleteFile], list[int], bool, list[tuple[list[int], int]]]] = {
    "of one commit": ([delete(3, "a"), delete(3, "b"), delete(4)], *([1, 3], False, [([3, 3], 3)])),
    "of other keys": ([delete(2), delete(3, ids=(2,))], [1], False, []),
    "of a string null": ([delete(2), delete(3, partition='["null"]')], [1], False, []),
    "of null": (
        [delete(2, partition='["null"]'), delete(3, partition="[null]")],
        *([1], False, []),
    ),
    "keys in any order": (
        [delete(2, ids=(1, 2)), delete(3, ids=(2, 1))],
        *([1], False, [([2, 3], 3)]),
    ),
    "large": ([delete(2, size=40 * MIB), delete(3, keys=20_000_000), delete(4)], *([1], False, [])),
    "medium": ([delete(each, size=20 * MIB) for each in range(2, 6)], [1], False, [([2, 3, 4], 4)]),
    "a vector that stays": ([VECTOR, delete(3)], [1], True, []),
    "a vector that others read": ([VECTOR, delete(3)], [1], False, [([2, 3], 3)]),
    "a vector alone": ([VECTOR], [1], False, [([2], 2)]),
    "a large vector": ([delete(2, vector=True, size=40 * MIB)], [1], False, [([2], 2)]),
    "a vector and two files": ([VECTOR, delete(3), delete(4)], [1], True, [([2, 3, 4], 4)]),
}


@pytest.mark.parametrize("case", MERGED)
def test_what_is_merged(case: str) -> None:
    files, data, staging, expected = MERGED[case]
    plan = planned(files, data, staging=staging)
    assert (merged(plan), plan.is_empty) == (expected, not expected)


def test_a_delete_without_older_data_is_dangling() -> None:
    plan = planned([delete(2), delete(3), delete(4)], [3])
    assert [each.sequence_number for each in plan.dangling] == [2, 3]
    assert (plan.groups, plan.is_empty) == ((), False)
    assert planned([delete(2)], []).dangling


def test_the_partition_decides_which_data_counts() -> None:
    files = [delete(2, partition='["a"]'), delete(4, partition='["a"]')]
    sequences = DataSequences((1, 3), {each.path: (1,) for each in files})
    plan = plan_deletes(files, sequences, staging=False, unwritable={})
    assert merged(plan) == [([2, 4], 4)]


def test_columns_that_cannot_be_written_are_left_alone() -> None:
    files = [delete(2), delete(3), delete(4, ids=(5,))]
    reasons: dict[tuple[int, ...], str] = {(1,): "why", (5,): "why"}
    plan = plan_deletes(files, DataSequences((1,)), staging=False, unwritable=reasons)
    assert plan.is_empty
    assert [(each.deletes, each.reason) for each in plan.apart] == [(2, "why")]


@pytest.mark.parametrize("seed", range(50))
def test_no_data_file_has_other_deletes_than_before(seed: int) -> None:
    chance = random.Random(seed)
    data = chance.sample(range(1, 20), chance.randint(0, 8))
    files = [delete(chance.randint(1, 20), f"d{place}") for place in range(12)]
    plan = planned(files, data)
    gone = {each.path for each in plan.removed}
    after = [(each.path, each.sequence_number) for each in files if each.path not in gone]
    after += [(file.path, group.sequence_number) for group in plan.groups for file in group.files]
    for number in data:
        before = {each.path for each in files if number < each.sequence_number}
        assert {path for path, sequence in after if number < sequence} == before
    again = [each for each in files if each.path not in gone]
    again += [delete(group.sequence_number, f"m{at}") for at, group in enumerate(plan.groups)]
    assert planned(again, data).is_empty
