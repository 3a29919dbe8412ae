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


def test_deletes_of_one_commit_are_merged_and_data_of_the_same_commit_is_newer() -> None:
    plan = planned([delete(3, "a"), delete(3, "b"), delete(4)], [1, 3])
    assert merged(plan) == [([3, 3], 3)]
    assert len(plan.apart) == 1


def test_a_delete_without_older_data_is_dangling() -> None:
    plan = planned([delete(2), delete(3), delete(4)], [3])
    assert [each.sequence_number for each in plan.dangling] == [2, 3]
    assert plan.groups == ()
    assert not plan.is_empty
    assert planned([delete(2)], []).dangling


def test_other_keys_and_partitions_are_not_merged() -> None:
    data = [1]
    others = [delete(3, "a", ids=(2,)), delete(3, "b", partition='["null"]')]
    plan = planned([delete(2), *others, delete(3, "c", partition="[null]")], data)
    assert plan.is_empty
    plan = planned([delete(2, ids=(1, 2)), delete(3, ids=(2, 1))], data)
    assert merged(plan) == [([2, 3], 3)]


def test_the_partition_decides_which_data_counts() -> None:
    files = [delete(2, partition='["a"]'), delete(4, partition='["a"]')]
    sequences = DataSequences((1, 3), {each.path: (1,) for each in files})
    plan = plan_deletes(files, sequences, staging=False, unwritable={})
    assert merged(plan) == [([2, 4], 4)]


def test_large_files_stay() -> None:
    plan = planned([delete(2, size=40 << 20), delete(3, keys=20_000_000), delete(4)], [1])
    assert plan.is_empty
    plan = planned([delete(number, size=20 << 20) for number in (2, 3, 4, 5)], [1])
    assert merged(plan) == [([2, 3, 4], 4)]


def test_vectors_stay_vectors_on_staging_branches_only() -> None:
    files = [delete(2, vector=True), delete(3)]
    assert planned(files, [1], staging=True).is_empty
    assert merged(planned(files, [1])) == [([2, 3], 3)]
    assert merged(planned(files[:1], [1])) == [([2], 2)]
    assert merged(planned([delete(2, vector=True, size=40 << 20)], [1])) == [([2], 2)]
    assert merged(planned([*files, delete(4)], [1], staging=True)) == [([2, 3, 4], 4)]


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
