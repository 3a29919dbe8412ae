"""Names that people bring along from other libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake.table import TableAlterer, TableMerger

import delvec
from delvec import DeltaTable, IcebergTable, peers
from delvec import calls as spellings
from delvec.delta.table.writes import MergeBuilder
from delvec.delta.write.report import WriteReport
from delvec.errors import DelvecError, InvalidArgumentError, UnknownNameError
from tests.delta.builder import small_table

# The public methods of delta-spark's DeltaTable and its merge builder.
OF_DELTA_SPARK = {
    DeltaTable: [
        *("toDF", "alias", "generate", "delete", "update", "merge", "vacuum", "history", "detail"),
        *("convertToDelta", "forPath", "forName", "create", "createIfNotExists", "replace"),
        *("createOrReplace", "isDeltaTable", "upgradeTableProtocol", "addFeatureSupport"),
        *("dropFeatureSupport", "restoreToVersion", "restoreToTimestamp", "optimize", "clone"),
    ],
    MergeBuilder: [
        *("whenMatchedUpdate", "whenMatchedUpdateAll", "whenMatchedDelete", "execute"),
        *("whenNotMatchedInsert", "whenNotMatchedInsertAll", "whenNotMatchedBySourceUpdate"),
        *("whenNotMatchedBySourceDelete", "withSchemaEvolution"),
    ],
    WriteReport: ["executeCompaction", "executeZOrderBy", "where"],
}


def assert_known(kind: type, names: Iterable[str]) -> None:
    """Each name is one of ours, or its error tells what to call."""
    for name in {each for each in names if each[0] != "_"} - {*dir(kind)}:
        error = spellings.explain_name(kind, name)
        assert isinstance(error, UnknownNameError), name
        assert error.hint, name


def test_all_names_of_delta_spark_and_deltalake_are_known() -> None:
    for kind, names in OF_DELTA_SPARK.items():
        assert_known(kind, names)
    assert_known(DeltaTable, (*dir(deltalake.DeltaTable), *dir(TableAlterer)))
    assert_known(MergeBuilder, dir(TableMerger))
    without = {"enable_nanosecond_timestamps", "init_tracing", "rust_core_version"}
    for name in set(deltalake.__all__) - without - {*dir(delvec)}:
        assert_known_in_module(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("forPath", "call for_path()"),
        ("isDeltaTable", "call is_delta_table()"),
        ("to_pyarrow_table", "call t.to_arrow(where, columns)"),
        ("load_as_version", "to_arrow(version=...)"),
        ("alter", "add_constraint()"),
        ("apend", "call append()"),
        ("Version", "it is called version"),
    ],
)
def test_a_name_of_others_is_an_attribute_error_with_the_method_that_was_meant(
    tmp_path: Path, name: str, hint: str
) -> None:
    small_table(tmp_path)
    for owner in (DeltaTable, DeltaTable(tmp_path)):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=f"DeltaTable has no {name}") as caught:
            getattr(owner, name)
        assert isinstance(caught.value, DelvecError)
        assert hint in str(caught.value.hint)


def test_methods_of_deltalake_that_are_properties_here_are_explained(tmp_path: Path) -> None:
    small_table(tmp_path)
    table: Any = DeltaTable(tmp_path)
    for name in ("schema", "protocol", "version"):
        told = rf"(?s){name} is a property.*write t\.{name}"
        with pytest.raises(InvalidArgumentError, match=told):
            getattr(table, name)()
    assert (type(table.version + 0), json.dumps(table.version)) == (int, "2")


def test_names_that_python_itself_looks_for_are_plain_attribute_errors(tmp_path: Path) -> None:
    small_table(tmp_path)
    table = DeltaTable(tmp_path)
    for name in ("__array__", "_repr_png_", "_ipython_canary_method_should_not_exist_"):
        with pytest.raises(AttributeError) as missing:
            getattr(table, name)
        assert not isinstance(missing.value, DelvecError)


@pytest.mark.parametrize(
    ("report", "name", "told"),
    [
        (("OPTIMIZE", "/t", 3), "where", "OPTIMIZE on /t: version 3\nHint: the condition is an"),
        (("OPTIMIZE", "/t", 3), "executeZOrderBy", "; restore(version=2) takes this one back"),
        (("OPTIMIZE", "/t"), "executeCompaction", "nothing was written\nHint: optimize() compacts"),
        (("DELETE", "/t", 3), "row_deleted", "no row_deleted\nHint: it is called rows_deleted"),
    ],
)
def test_a_builders_method_on_a_report_says_what_has_run_and_how_to_take_it_back(
    report: tuple[Any, ...], name: str, told: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        getattr(WriteReport(*report), name)
    assert told in str(caught.value)


def test_every_hint_names_what_exists() -> None:
    ours = [call.delvec for calls in peers.CALLS.values() for call in calls]
    for text in ours:
        for kind, name in re.findall(r"\b(t|DeltaTable|DeltaTable\(p\)|delvec)\.(\w+)", text):
            owner = delvec if kind == "delvec" else DeltaTable
            assert hasattr(owner, name) or name == "storage", text
    for text in peers._OF_ICEBERG.values():
        for name in re.findall(r"[`.](\w+)\(", text):
            assert hasattr(IcebergTable, name) or name in ("writeTo", "overwritePartitions"), text


def test_a_keyword_of_others_is_taken_for_ours() -> None:
    for keyword, known, meant in (
        ("condition", ["where", "keys"], "where"),
        ("predicate", ["set", "condition"], "condition"),
        ("predicate", ["source", "on"], "on"),
        ("mergeSchema", ["df", "merge_schema"], "merge_schema"),
        ("partitionBy", ["schema", "partition_by"], "partition_by"),
        ("new_values", ["set", "where"], "set"),
        ("versionAsOf", ["version"], "version"),
        ("wher", ["where"], None),
    ):
        assert spellings.keyword_meant(keyword, known) == meant


def assert_known_in_module(name: str) -> str:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'") as caught:
        getattr(delvec, name)
    assert isinstance(caught.value, UnknownNameError)
    assert caught.value.hint, name
    return str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("write_deltalake", "call DeltaTable(p).append(df)"),
        ("convert_to_deltalake", "call DeltaTable.convert_to_delta(None, p)"),
        ("configure_spark_with_delta_pip", "call delvec.configure(builder)"),
        ("QueryBuilder", "createOrReplaceTempView"),
        ("deltatable", "it is called DeltaTable"),
        ("clean_targets", "it is called clean_target"),
    ],
)
def test_a_name_that_the_module_does_not_have_is_explained(name: str, hint: str) -> None:
    assert hint in assert_known_in_module(name)


def test_a_name_that_nobody_has_is_an_attribute_error() -> None:
    assert not hasattr(delvec, "qqqqqqqq")
    with pytest.raises(AttributeError) as caught:
        delvec.__wrapped__  # noqa: B018
    assert not isinstance(caught.value, DelvecError)
