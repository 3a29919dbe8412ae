"""Rows of Arrow as DataFrames of libraries that delvec does not depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.errors import MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def to_pandas(rows: pa.Table) -> pd.DataFrame:
    try:
        return rows.to_pandas()
    except ModuleNotFoundError as error:
        raise _missing("pandas") from error


def to_polars(rows: pa.RecordBatchReader) -> pl.DataFrame:
    try:
        import polars as pl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing("polars") from error
    return pl.DataFrame(rows)


def _missing(library: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"to_{library}() needs {library}",
        dependency=library,
        hint=f"pip install {library}, or use to_arrow()",
    )
