"""Partition filters of a query, evaluated by Spark on the values that the log has.

Spark does not apply them to rows again, so that the result has to be exact.
"""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType

from delvec.delta.schema.partition_values import is_null_text
from delvec.errors import FormatError
from delvec.spark import jvm
from delvec.spark.types import spark_type
from delvec.storage.listed_files import full_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from delvec.delta.log.snapshot import Snapshot
    from delvec.spark.delta.scan.vector_bits import ScanPart

__all__ = ["PartitionFilters", "distinct_rows"]


class PartitionFilters:
    """The partition values of a scan's files, as rows of the JVM."""

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        part: ScanPart,
        lister: Any,  # noqa: ANN401
        time_zone: str,
        hidden: tuple[str, str],
    ) -> None:
        """Prepare the files of a scan; reads no partition value yet.

        Args:
            spark: A classic session.
            snapshot: The version that they are of.
            part: Which of its files.
            lister: The FileLister of the scan, which casts and evaluates.
            time_zone: Of the session, for partition values that are timestamps without a zone.
            hidden: The names of the columns that hold the name and the number of a row's file.
        """
        self._spark, self._snapshot, self._part = spark, snapshot, part
        self._lister, self._time_zone, self._hidden = lister, time_zone, hidden

    def matching(self, filters: Sequence[Any]) -> NDArray[np.bool_]:
        """Return which files satisfy all filters.

        A filter is evaluated once for each distinct combination of partition values; one that
        refers to the file itself, once for each file.

        Raises:
            FormatError: A partition value is not of its column's type.
        """
        view = jvm.view_of(self._spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        names = [field.physical_name for field in self._snapshot.metadata.partition_fields]
        kept = np.ones(len(self._part.files), dtype=np.bool_)
        for condition in filters:
            used = list(jvm.items(condition.references()))
            asked = [attribute.name() for attribute in used]
            by_file = not set(asked) <= set(names)
            columns = [*names, *self._hidden] if by_file else names
            attributes = getattr(expressions, "package$AttributeSeq")(jvm.to_seq(self._spark, used))
            bound = expressions.BindReferences.bindReference(condition, attributes, False)
            places = jvm.array_of(self._spark, view.int, [columns.index(name) for name in asked])
            matching = self._lister.matches(
                expressions.Predicate.createInterpreted(bound),
                self._rows_of_files if by_file else self.rows,
                places,
            )
            matches = np.frombuffer(matching, np.uint8).astype(np.bool_)
            kept &= matches if by_file else matches[self.groups]
        return kept

    @property
    def groups(self) -> NDArray[np.int64]:
        """For each file the index of its partition values in `rows`."""
        return self._distinct[0]

    @cached_property
    def rows(self) -> Any:  # noqa: ANN401
        """The distinct partition values, as rows of the JVM."""
        return self._typed_rows(self._distinct[1], [])

    @cached_property
    def _rows_of_files(self) -> Any:  # noqa: ANN401
        """The partition values, the name and the number of each file, as rows of the JVM."""
        codes, values = self._distinct
        root, paths = self._snapshot.table, self._part.files.paths.to_pylist()
        rows = [
            (*values[code], full_name(root, path), str(number))
            for code, path, number in zip(codes, paths, self._part.numbers.tolist(), strict=True)
        ]
        return self._typed_rows(rows, [StringType(), LongType()])

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
        """For each file the index of its partition values, and the distinct ones, as strings."""
        files, fields = self._part.files, self._snapshot.metadata.partition_fields
        if not fields:
            return np.zeros(len(files), dtype=np.int64), [()]
        return distinct_rows([files.partition_strings(field.physical_name) for field in fields])

    def _typed_rows(self, rows: Sequence[tuple[str | None, ...]], more: Sequence[DataType]) -> Any:  # noqa: ANN401
        """Cast partition values and `more` columns from strings, by Spark's own casts."""
        fields = self._snapshot.metadata.partition_fields
        kinds = [*(spark_type(field.type) for field in fields), *more]
        casts = [self._cast(place, kind) for place, kind in enumerate(kinds)]
        expression = jvm.java_class(
            self._spark, "org.apache.spark.sql.catalyst.expressions.Expression"
        )
        own = len(fields)
        strings = [
            tuple(
                None if text is None or is_null_text(text, field.type) else text
                for text, field in zip(values[:own], fields, strict=True)
            )
            + values[own:]
            for values in rows
        ]
        try:
            return self._lister.rows(
                pickle.dumps(strings, protocol=4),
                jvm.array_of(self._spark, expression, casts),
            )
        except (Py4JJavaError, PySparkException) as error:
            cause = str(error).splitlines()[0]
            raise FormatError(
                f"a partition value of the log is not of its column's type ({cause})",
                path=self._snapshot.table,
                expected=", ".join(f"{field.name} {field.type}" for field in fields),
            ) from error

    def _cast(self, place: int, kind: DataType) -> Any:  # noqa: ANN401
        view = jvm.view_of(self._spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        types = view.org.apache.spark.sql.types
        return expressions.Cast(
            expressions.BoundReference(place, types.DataTypes.StringType, True),
            types.DataType.fromJson(kind.json()),
            view.scala.Option.apply(self._time_zone),
            expressions.EvalMode.ANSI(),
        )


def distinct_rows(
    columns: Sequence[pa.Array],
) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
    """Return for each row the index of its combination of values, and the distinct combinations."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        joined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, codes = np.unique(joined, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    rows = [column.take(first).to_pylist() for column in columns]
    return codes, list(zip(*rows, strict=True))
