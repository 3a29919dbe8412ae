"""Which form deletes by key take, and what the report says of the reason."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.iceberg.table.mirror import ENABLED, Mirror, found, refuses, stock

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

COLUMNS = "order_id bigint, customer_id int, name string, day date"

# What is deleted, the columns, the vectors, the ordinary files, and what each sentence says.
LINES: dict[str, tuple[list[Any], tuple[str, ...], int, int, tuple[str, ...]]] = {
    "bigint": ([100, 200, 300], ("order_id",), 1, 1, ("3 keys in an Equality Delete Vector of ",)),
    "int": ([5], ("customer_id",), 1, 1, ("1 key in an Equality Delete Vector of ",)),
    "composite": ([(5, 10)], ("order_id", "customer_id"), 0, 1, ("1 key in 1 .*: .*2 columns",)),
    "string": (["A", "B"], ("name",), 0, 1, ("2 keys in 1 Parquet file of .*: .*string",)),
    "negative": ([-100], ("order_id",), 0, 1, ("a vector holds no such keys: 1 negative",)),
    "null": ([None], ("order_id",), 0, 1, ("a vector holds no such keys: 1 null",)),
    "mixed": (
        [-1, None, 7, 8],
        ("order_id",),
        1,
        2,
        (
            "2 keys in an Equality Delete Vector of ",
            "2 keys in 1 Parquet file of .*: a vector holds no such keys: 1 negative and 1 null",
        ),
    ),
}
ROWS: list[tuple[Any, ...]] = [
    (100, 1, "A", None),
    (200, 5, "B", None),
    (300, 2, "C", None),
    (12345, 3, "D", None),
    (5, 10, "E", None),
    (5, 11, "F", None),
    (-100, 4, "G", None),
    (None, 4, "H", None),
    (-1, 4, "I", None),
    (7, 4, "J", None),
    (1_000_000_000, 4, "K", None),
    (6, None, None, None),
]


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> Mirror:
    """A table with the property, format version 3, and the same rows on all branches."""
    mirror = Mirror.new(spark, COLUMNS, properties=ENABLED)
    mirror.append(ROWS)
    return mirror


def matches(report: Any, *sentences: str) -> None:  # noqa: ANN401
    assert len(report.forms) == len(sentences), report.forms
    for said, expected in zip(report.forms, sentences, strict=True):
        assert re.search(expected, said), report.forms


@pytest.mark.parametrize("line", LINES)
def test_on_a_branch_that_others_read(orders: Mirror, line: str) -> None:
    """The ordinary file is there in any case; a vector stands in the statistics file beside it."""
    keys, columns, vectors, files, sentences = LINES[line]
    branch = f"b_{line}"
    orders.create_branch(branch)
    report = orders.delete_keys(keys, *columns, branch=branch)
    assert (report.keys, report.key_vectors, report.delete_files) == (len(keys), vectors, files)
    matches(report, *sentences)
    if vectors:
        assert "beside 1 Parquet file" in report.forms[0]
    snapshot = orders.table._load().metadata.snapshots[report.snapshot_id or 0]
    assert snapshot.summary["delvec.equality-delete-vectors"] == str(vectors)
    assert snapshot.summary["delvec.equality-delete-files"] == str(files)
    assert snapshot.summary["delvec.equality-delete-keys"] == str(len(keys))
    assert snapshot.summary["added-equality-deletes"] == str(len(keys))
    assert orders.table.detail(branch=branch).equality_delete_vectors == 0
    expected = Counter(orders.branches.pop(branch))
    assert found(stock(orders.table, branch)) == found(orders.table.to_df(branch)) == expected
    orders.table.drop_branch(branch)


@pytest.mark.parametrize(
    "line",
    ["mixed", *(pytest.param(each, marks=pytest.mark.slow) for each in LINES if each != "mixed")],
)
def test_on_a_staging_branch(orders: Mirror, line: str) -> None:
    """A vector needs no ordinary file there, and stock Iceberg does not read it."""
    keys, columns, vectors, files, sentences = LINES[line]
    branch = f"s_{line}"
    orders.create_branch(branch, staging=True)
    report = orders.delete_keys(keys, *columns, branch=branch)
    assert (report.key_vectors, report.delete_files) == (vectors, files - vectors)
    matches(report, *sentences)
    assert orders.table.detail(branch=branch).equality_delete_vectors == vectors
    assert found(orders.table.to_df(branch)) == Counter(orders.branches.pop(branch))
    if vectors:
        assert "beside" not in report.forms[0]
        refuses(orders.table, branch)
    orders.staging.discard(branch)
    orders.table.drop_branch(branch)


@pytest.mark.more
def test_sparse_keys_go_where_they_are_smaller(orders: Mirror) -> None:
    """Keys far from each other cost most in a vector: about 22 bytes for each."""
    numbers = random.Random(5)
    orders.create_branch("sparse")
    snowflakes = sorted(numbers.sample(range(1 << 62), 2000))
    report = orders.delete_keys(snowflakes, "order_id", branch="sparse")
    assert (report.key_vectors, report.delete_files) == (0, 1)
    matches(report, "a vector would take .* more than their ")
    dense = orders.delete_keys(list(range(100_000)), "order_id", branch="sparse")
    assert (dense.key_vectors, dense.delete_files) == (1, 1)
    assert dense.vector_bytes < dense.delete_bytes
    orders.check()
    orders.table.drop_branch("sparse")
    del orders.branches["sparse"]
