"""What is refused of a definition where there is no Spark to parse it."""

from __future__ import annotations

from pathlib import Path

import pytest

from delvec import DeltaTable
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import UnsupportedFeatureError


def create(path: Path, check: str, default: str = "1") -> DeltaTable:
    fields = (
        Field("id", PrimitiveType("long")),
        Field("n", PrimitiveType("long"), metadata={"CURRENT_DEFAULT": default}),
    )
    return DeltaTable.create(
        None, path, StructType(fields), properties={"delta.constraints.c": check}
    )


@pytest.mark.parametrize(
    "check",
    [
        "reflect('java.lang.System', 'exit', '1') > 0",
        "`reflect` ('a', 'b')",
        "id > (select max(id) from t)",
        "main.rules.f(id)",
        "concat('it''s (', uuid())",
    ],
)
def test_calls_of_other_functions_are_refused(tmp_path: Path, check: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"constraint c of .* calls "):
        create(tmp_path, check)
    assert not any(tmp_path.iterdir())


def test_what_only_looks_like_a_call_is_not(tmp_path: Path) -> None:
    check = (
        "id in (1, 2) AND (n is null OR (cast(n AS decimal(10, 2)) > 0)) AND 'reflect(' <> 'x'"
        " AND CASE WHEN (id > 0) THEN (length('a') > 0) ELSE (n between (1) and (2)) END"
    )
    create(tmp_path / "t", check, default="year(current_date())")
    with pytest.raises(UnsupportedFeatureError, match=r"the default of column n of .* calls uuid"):
        create(tmp_path / "u", check, default="uuid()")
