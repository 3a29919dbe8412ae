"""Names that people bring along from delta-spark, deltalake, PyIceberg and Spark, in one table.

Keywords that only have another name here are taken as they are. Methods are explained: the error
is an `AttributeError`, and its hint names the method that was meant.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delvec.errors import InvalidArgumentError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Explained",
    "called_property",
    "explain_module_name",
    "explain_name",
    "keyword_meant",
    "with_parts",
]

_Function = TypeVar("_Function", bound="Callable[..., Any]")

# Keywords in lower case without underscores, and what they are called here.
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "condition": ("where", "on"),
    "predicate": ("where", "on", "condition"),
    "filter": ("where",),
    "filters": ("where",),
    "replacewhere": ("where",),
    "updates": ("set", "values"),
    "source": ("df",),
    "data": ("df",),
    "usermetadata": ("commit_metadata",),
    "custommetadata": ("commit_metadata",),
    "overwriteschema": ("replace_schema",),
    "partitioncolumns": ("partition_by",),
    "configuration": ("properties",),
    "versionasof": ("version",),
    "timestampasof": ("timestamp",),
    "startingversion": ("start_version",),
    "endingversion": ("end_version",),
    "startingtimestamp": ("start_timestamp",),
    "endingtimestamp": ("end_timestamp",),
}
_ALTERATIONS: Final = (
    "call add_columns(), rename_column(), drop_column(), add_constraint(), drop_constraint(),"
    " set_properties() or add_feature() of the table itself"
)
_NEWEST: Final = "not needed: each call sees the newest version"
# Methods, spelled like the keywords above, and a hint; those that differ in case or underscores
# only are found without.
_DELTA: Final[Mapping[str, str]] = {
    "addfeaturesupport": "call add_feature(name)",
    "alias": "conditions call the table t; merge() takes target_alias=...",
    "alter": _ALTERATIONS,
    "as": "conditions call the table t; merge() takes target_alias=...",
    "cleanupmetadata": "call clean_log()",
    "compact": "call optimize()",
    "createcheckpoint": "call checkpoint()",
    "createorreplace": "call create(spark, path, schema, mode='replace')",
    "deletekeys": 'call delete(keys=..., on=["id"])',
    "deletionvectors": "call arrow_files(), whose column deletion_vector has them",
    "dropfeaturesupport": "call drop_deletion_vectors(); other features only delta-spark drops, by"
    " ALTER TABLE ... DROP FEATURE",
    "fileuris": "call arrow_files()",
    "fortableid": "call for_name(spark, name) or for_path(spark, path)",
    "generate": "call generate_manifest()",
    "getaddactions": "call arrow_files()",
    "loadasversion": "name the version where you read: to_arrow(version=...), to_df(version=...)",
    "loadcdf": "call changes(start_version)",
    "metadata": "call detail()",
    "partitions": "call arrow_files()",
    "repair": "call check(repair=True)",
    "replace": "call create(spark, path, schema, mode='replace')",
    "restoretotimestamp": "call restore(timestamp=...)",
    "restoretoversion": "call restore(version=...)",
    "scan": "call to_batches(where, columns), or to_df() on Spark",
    "tableconfig": "look at properties",
    "tableuri": "look at storage.root",
    "topyarrowdataset": "call to_batches(where, columns), which streams",
    "topyarrowtable": "call to_arrow(where, columns)",
    "updateincremental": _NEWEST,
    "upgradetableprotocol": "call add_feature(name)",
    "upsert": 'call merge(df, on="t.id = s.id").when_matched_update_all()'
    ".when_not_matched_insert_all().execute()",
    "write": "call append(df) or overwrite(df)",
    "zorder": "call optimize(zorder_by=[...])",
}
_ICEBERG: Final[Mapping[str, str]] = {
    "currentsnapshot": "call snapshots() or detail()",
    "forpath": 'call for_name(spark, "catalog.database.table")',
    "maintenance": "call expire_snapshots() or remove_orphan_files()",
    "managesnapshots": "call create_branch(), create_tag(), rollback() or fast_forward()",
    "merge": 'call upsert(df, keys=["id"])',
    "metadata": "call detail()",
    "optimize": "call compact()",
    "overwrite": "Spark does that: df.writeTo(name).overwritePartitions()",
    "refresh": _NEWEST,
    "rewritedatafiles": "call compact()",
    "scan": "call to_df(where=..., columns=...)",
    "update": 'call upsert(df, keys=["id"])',
    "updateschema": "Spark does that: ALTER TABLE",
    "updatespec": "Spark does that: ALTER TABLE",
    "vacuum": "call expire_snapshots(), then remove_orphan_files()",
}
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "DeltaTable": _DELTA,
    "IcebergTable": _ICEBERG,
    "MergeBuilder": {"withschemaevolution": "call merge(source, on, merge_schema=True)"},
    "WriteReport": {
        "executecompaction": "optimize() has compacted the table, this is its report",
        "executezorderby": "optimize() has compacted the table; call optimize(zorder_by=[...])",
        "where": "this is the report of what was done; the condition is an argument: optimize(...)",
    },
}
_SCHEMA: Final = (
    "a schema is a StructType of Spark, a schema of Arrow, or a string such as 'id long, day date'"
)
_COMMIT: Final = (
    "pass keywords to the call that writes: commit_metadata=..., txn_app_id=..., txn_version=..."
)
_FILES: Final = (
    "Spark writes the files, by its settings spark.sql.parquet.*; the table property"
    " delta.parquet.compression.codec names the codec"
)
# Names of modules, spelled like the keywords above.
_MODULE: Final[Mapping[str, str]] = {
    "bloomfilterproperties": _FILES,
    "columnproperties": _FILES,
    "commitproperties": _COMMIT,
    "configuresparkwithdeltapip": "call configure(builder), or session()",
    "converttodelta": "call DeltaTable.convert_to_delta(None, path)",
    "converttodeltalake": "call DeltaTable.convert_to_delta(None, path)",
    "datatype": _SCHEMA,
    "deltamergebuilder": "DeltaTable.merge() returns it",
    "deltaoptimizebuilder": "call DeltaTable.optimize()",
    "field": _SCHEMA,
    "loadcatalog": 'call IcebergTable.for_name(spark, "catalog.database.table")',
    "metadata": "call DeltaTable.detail()",
    "postcommithookproperties": "the table property delta.checkpointInterval says when checkpoints"
    " are written; clean_log() cleans the log",
    "querybuilder": "DeltaTable(path).to_df().createOrReplaceTempView(name), then spark.sql(...);"
    " without Spark, DuckDB and Polars take the table itself",
    "readdelta": "call DeltaTable(path).to_polars()",
    "scandelta": "call DeltaTable(path).to_polars()",
    "schema": _SCHEMA,
    "tablefeatures": 'features are strings: DeltaTable.add_feature("deletionVectors")',
    "transaction": _COMMIT,
    "varianttype": _SCHEMA,
    "writedelta": "call DeltaTable(path).append(df) or overwrite(df)",
    "writedeltalake": "call DeltaTable(path).append(df) or overwrite(df); where there is no table,"
    " DeltaTable.create(spark, path, df.schema) makes it",
    "writerproperties": _FILES,
}

# What deltalake calls behind a method that runs here at once: `t.optimize.compact()`.
_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "optimize": {"compact": "call optimize()", "z_order": "call optimize(zorder_by=[...])"},
}


def keyword_meant(keyword: str, known: Iterable[str]) -> str | None:
    """Return the keyword that another library's name or another case stands for, if it is one.

    >>> keyword_meant("predicate", ["set", "where"]), keyword_meant("wher", ["set", "where"])
    ('where', None)
    """
    plain, names = _plain(keyword), list(known)
    meant = [each for each in _KEYWORDS.get(plain, ()) if each in names]
    meant = meant or [each for each in names if _plain(each) == plain]
    return meant[0] if meant else None


class Explained(type):
    """The metaclass of classes whose unknown names are explained, as `DeltaTable.forPath`."""

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(cls, name: str) -> Any:  # noqa: ANN401
            raise explain_name(cls, name)


def explain_name(kind: type, name: str) -> AttributeError:
    """Return the error for a name that a class does not have.

    >>> class DeltaTable:
    ...     def to_df(self): ...
    >>> print(explain_name(DeltaTable, "toDF"))
    DeltaTable has no toDF
    Hint: call to_df()
    """
    if name.startswith("_"):
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    own = [each for each in dir(kind) if not each.startswith("_")]
    plain = _plain(name)
    hint = _NAMES.get(kind.__name__, {}).get(plain)
    if hint is None:
        meant = [each for each in own if _plain(each) == plain]
        meant = meant or get_close_matches(name, own, 1)
        hint = _shown(kind, meant[0]) if meant else None
    error = UnknownNameError(f"{kind.__name__} has no {name}", hint=hint)
    error.name = None  # with a name some versions of Python add a suggestion of their own
    return error


def explain_module_name(name: str, public: Iterable[str]) -> AttributeError:
    """Return the error for a name that the package does not have.

    >>> print(explain_module_name("DeltaTabel", ["Bitmap", "DeltaTable"]))
    module 'delvec' has no attribute 'DeltaTabel'
    Hint: it is called DeltaTable
    """
    message = f"module 'delvec' has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message)
    plain, names = _plain(name), list(public)
    hint = _MODULE.get(plain)
    if hint is None:
        meant = [each for each in names if _plain(each) == plain]
        meant = meant or get_close_matches(name, names, 1)
        hint = f"it is called {meant[0]}" if meant else None
    error = UnknownNameError(message, hint=hint)
    error.name = None
    return error


def called_property(name: str) -> InvalidArgumentError:
    """Return the error for a property that is called, as deltalake's method of that name."""
    return InvalidArgumentError(
        f"{name} is a property, and no method", hint=f"write t.{name}, without parentheses"
    )


def with_parts(function: _Function) -> _Function:
    """Explain names that deltalake has behind the name of a method, as `t.optimize.compact()`."""
    for part, hint in _PARTS.get(function.__name__, {}).items():
        setattr(function, part, partial(_refuse_part, f"{function.__name__}.{part}()", hint))
    return function


def _refuse_part(call: str, hint: str, *_: object, **__: object) -> None:
    raise UnknownNameError(f"there is no {call}", hint=hint)


def _shown(kind: type, name: str) -> str:
    return f"call {name}()" if callable(getattr(kind, name)) else f"it is called {name}"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
