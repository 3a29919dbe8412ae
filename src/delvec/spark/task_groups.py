"""Aggregates that the driver completes: the groups of each task, collected without a shuffle.

Spark aggregates in each task, shuffles the groups by their key, and aggregates again. Where tasks
share few keys, and the driver gets all groups in any case, the shuffle and the second half are most
of what an aggregate costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

__all__ = ["collect_groups", "shuffles"]


def shuffles(rows: DataFrame) -> bool:
    """Whether the plan of some rows has a shuffle; plans them, and runs no job."""
    planned: Any = rows._jdf  # noqa: SLF001
    plan = planned.queryExecution().executedPlan()
    return _has_shuffle(plan.initialPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan)


def collect_groups(groups: DataFrame, keys: int, buffers: Sequence[str]) -> pa.Table:
    """Collect an aggregate, whose keys may come more than once: at most once from each task.

    If the plan has a shuffle of its own, which leaves the rows of a key in many tasks, or is not of
    the form that is known, Spark completes the aggregate.

    Args:
        groups: An aggregate by keys: these, then functions of which each has one buffer that is its
            result as well, such as `count`, `sum` of integers, `bit_or`.
        keys: The number of keys.
        buffers: The names that Spark gives these buffers, to be sure of them.
    """
    # An adaptive plan is not known before it runs.
    spark, fixed = groups.sparkSession, {"spark.sql.adaptive.enabled": "false"}
    planned: Any = jvm.in_copied_session(spark, groups, fixed)._jdf  # noqa: SLF001
    partial = _below_shuffle(planned.queryExecution().executedPlan())
    if partial is None or _has_shuffle(partial):
        return groups.toArrow()
    schema = partial.schema()
    if list(schema.fieldNames())[keys:] != list(buffers):
        return groups.toArrow()
    rows = jvm.session_of(spark).internalCreateDataFrame(partial.execute(), schema, False)
    return DataFrame(rows, spark).toArrow().rename_columns(groups.columns)


def _below_shuffle(plan: Any) -> Any | None:  # noqa: ANN401
    """Return what the topmost shuffle of a plan reads; None if there is none before it branches."""
    while plan.nodeName() != "Exchange":
        children = list(jvm.items(plan.children()))
        if len(children) != 1:
            return None
        [plan] = children
    return plan.child()


def _has_shuffle(plan: Any) -> bool:  # noqa: ANN401
    return any(node.nodeName() == "Exchange" for node in _nodes(plan))


def _nodes(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    yield plan
    for child in jvm.items(plan.children()):
        yield from _nodes(child)
