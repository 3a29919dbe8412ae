"""delta-spark's builder of a new table: a CREATE or REPLACE TABLE in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructField, StructType

from delvec.calls import describe_value
from delvec.compat.arguments import ArgumentTypeError, listed, require_text
from delvec.delta.schema import expressions
from delvec.door.door import require_open
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, sql_string
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

_START: Final = f"{expressions.IDENTITY}start"
_STEP: Final = f"{expressions.IDENTITY}step"
_BY_DEFAULT: Final = f"{expressions.IDENTITY}allowExplicitInsert"


@dataclass
class IdentityGenerator:
    """The values of an identity column."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """A table to be made: each method adds to this builder, and returns it."""

    def __init__(self, spark: SparkSession, command: str) -> None:
        """Begin a table that a command such as CREATE TABLE makes."""
        self._spark = spark
        self._command = command
        self._name = ""
        self._location = ""
        self._comment = ""
        self._fields: list[StructField] = []
        self._partitions: list[str] = []
        self._clustering: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:
        """Name the table."""
        require_text("Identifier", identifier)
        self._name = identifier
        return self

    def location(self, location: str) -> Self:
        """Say where its files are."""
        require_text("Location", location)
        self._location = location
        return self

    def comment(self, comment: str) -> Self:
        """Describe it."""
        require_text("Table comment", comment)
        self._comment = comment
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,  # noqa: FBT001, FBT002
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> Self:
        """Add a column, whose values may be generated."""
        require_text("Column name", colName)
        if not isinstance(dataType, str | DataType):
            raise ArgumentTypeError(
                f"Column data type must be str or DataType, not {describe_value(dataType)}"
            )
        if not isinstance(nullable, bool):
            raise ArgumentTypeError(f"Column nullable must be bool, not {describe_value(nullable)}")
        metadata = _generated(generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            require_text("Column comment", comment)
            metadata["comment"] = comment
        kind = DataType.fromDDL(dataType) if isinstance(dataType, str) else dataType
        self._fields.append(StructField(colName, kind, nullable, metadata))
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> Self:
        """Add the columns of a schema."""
        if not isinstance(cols, StructType | list):
            raise ArgumentTypeError(
                f"Columns must be StructType or a list of StructField, not {describe_value(cols)}"
            )
        for field in cols:
            if not isinstance(field, StructField):
                raise ArgumentTypeError(f"Column must be StructField, not {describe_value(field)}")
            self._fields.append(field)
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> Self:
        """Partition the table by columns."""
        self._partitions = listed(cols, "Partitioning column")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> Self:
        """Cluster the table by columns."""
        self._clustering = listed(cols, "Clustering column")
        return self

    def property(self, key: str, value: str) -> Self:
        """Set a table property."""
        require_text("Key of property", key)
        require_text("Value of property", value)
        self._properties[key] = value
        return self

    def make(self) -> str:
        """Make the table; return its name."""
        require_open(self._spark, f"{self._command} by a builder")
        if not self._name and not self._location:
            raise InvalidArgumentError(
                "a table needs a name or a location", hint="tableName('db.t') or location('/path')"
            )
        name = self._name or f"delta.{quote(self._location)}"
        columns = ", ".join(self._column(each) for each in self._fields)
        clauses = [f"({columns})" if columns else "", "USING delta"]
        if self._partitions:
            clauses.append(f"PARTITIONED BY ({', '.join(map(quote, self._partitions))})")
        if self._clustering:
            clauses.append(f"CLUSTER BY ({', '.join(self._clustering)})")
        if self._name and self._location:
            clauses.append(f"LOCATION {sql_string(self._location)}")
        if self._comment:
            clauses.append(f"COMMENT {sql_string(self._comment)}")
        if self._properties:
            pairs = (f"{sql_string(k)} = {sql_string(v)}" for k, v in self._properties.items())
            clauses.append(f"TBLPROPERTIES ({', '.join(pairs)})")
        statement = " ".join([self._command, name, *clauses])
        if "${" in statement:
            # Spark would replace it, by a secret of the environment if a table's schema says so.
            raise InvalidArgumentError(
                "the table to be made has ${ in a name, a comment or an expression",
                hint="delvec.DeltaTable.create(spark, path, schema) takes it as it is",
            )
        self._spark.sql(statement)
        return name

    def _column(self, field: StructField) -> str:
        """Return a column as SQL."""
        metadata = field.metadata or {}
        words = [quote(field.name), str(jvm.java_type(self._spark, field.dataType).sql())]
        if not field.nullable:
            words.append("NOT NULL")
        if (generation := metadata.get(expressions.GENERATION)) is not None:
            words.append(f"GENERATED ALWAYS AS ({generation})")
        elif _START in metadata:
            how = "BY DEFAULT" if metadata.get(_BY_DEFAULT) else "ALWAYS"
            values = f"START WITH {metadata[_START]} INCREMENT BY {metadata[_STEP]}"
            words.append(f"GENERATED {how} AS IDENTITY ({values})")
        elif (default := metadata.get(expressions.CURRENT_DEFAULT)) is not None:
            words.append(f"DEFAULT {default}")
        if (comment := metadata.get("comment")) is not None:
            words.append(f"COMMENT {sql_string(comment)}")
        return " ".join(words)


def _generated(always: object, by_default: object) -> dict[str, Any]:
    """Return what the metadata of a column says of values that are generated."""
    if always is not None and by_default is not None:
        raise InvalidArgumentError("generatedByDefaultAs and generatedAlwaysAs cannot both be set")
    if isinstance(always, str):
        return {expressions.GENERATION: always}
    given = by_default if always is None else always
    if given is None:
        return {}
    if not isinstance(given, IdentityGenerator):
        name = "by default" if always is None else "always as"
        raise ArgumentTypeError(
            f"Generated {name} expression must be {'' if always is None else 'str or '}"
            f"IdentityGenerator, not {describe_value(given)}"
        )
    if given.step == 0:
        raise InvalidArgumentError("Column identity generation requires step to be non-zero")
    return {_START: given.start, _STEP: given.step, _BY_DEFAULT: always is None}
