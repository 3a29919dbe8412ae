"""What delta-spark and deltalake have, and what delvec has for it: one list.

It explains names that delvec's classes do not have, `delvec migrate` judges sources by it, and the
tables of docs/migrating.md are made of it. Texts are Markdown: code is in back quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

Library = Literal["delta-spark", "deltalake"]


@dataclass(frozen=True)
class Call:
    """What three libraries call the same thing; empty where one has none.

    The table is `t`; a spelling that begins with a dot is of the builder of a merge, in deltalake
    of an alteration where it says so.
    """

    delta_spark: str
    deltalake: str
    delvec: str


@dataclass(frozen=True)
class Rule:
    """What does not run here as it is written, found by a pattern, and what to write instead.

    A pattern is searched in a text: of `call` that of a call by the compat classes, with its
    arguments; of `chain` that of a method on a reader or writer of `format("delta")`; of `string`
    a constant; of `jvm` dotted names; of `sql` a statement with single spaces. In none of them
    case matters.
    """

    of: Literal["call", "chain", "string", "jvm", "sql"]
    pattern: str
    instead: str
    what: str


_NEWEST: Final = "not needed: each call sees the newest version"
_SCHEMA: Final = (
    "a schema is a StructType of Spark, a schema of Arrow, or a string: `'id long, day date'`"
)
_COMMIT: Final = (
    "keywords of the call that writes: `commit_metadata=…`, `txn_app_id=…`, `txn_version=…`"
)
_FILES: Final = (
    "Spark writes the files, by its settings `spark.sql.parquet.*`; the table property"
    " `delta.parquet.compression.codec` names the codec"
)
_FILES_OF: Final = "`t.arrow_files()`"
_APPEND: Final = (
    "`DeltaTable(p).append(df)` or `overwrite(df)`; where there is no table,"
    " `DeltaTable.create(spark, p, df.schema)` makes it; DataFrames of Spark, pandas, Polars, Arrow"
)

CALLS: Final[Mapping[str, tuple[Call, ...]]] = {
    "Opening": (
        Call(
            "`DeltaTable.forPath(spark, p)`",
            "`DeltaTable(p)`",
            "`DeltaTable(p)`, with the session of the process if there is one;"
            " `DeltaTable.for_path(spark, p)`, or with `None` in place of the session",
        ),
        Call("`DeltaTable.forName(spark, n)`", "", "`DeltaTable.for_name(spark, n)`"),
        Call("`DeltaTable.forTableId(spark, i)`", "", "`DeltaTable.for_name(spark, n)`"),
        Call(
            "`DeltaTable.isDeltaTable(spark, p)`",
            "`DeltaTable.is_deltatable(p)`",
            "`DeltaTable.is_delta_table(p)`",
        ),
        Call(
            "`DeltaTable.create(spark)…execute()`",
            "`DeltaTable.create(p, schema=s)`",
            "`DeltaTable.create(spark, p, s)`",
        ),
        Call(
            "`DeltaTable.createIfNotExists(spark)…`",
            '`DeltaTable.create(p, s, mode="ignore")`',
            "`DeltaTable.create_if_not_exists(spark, p, s)`",
        ),
        Call(
            "`DeltaTable.replace(spark)…`, `DeltaTable.createOrReplace(spark)…`",
            '`DeltaTable.create(p, s, mode="overwrite")`',
            '`DeltaTable.create(spark, p, s, mode="replace")`',
        ),
        Call(
            '`DeltaTable.convertToDelta(spark, "parquet.…")`',
            "`convert_to_deltalake(p)`",
            "`DeltaTable.convert_to_delta(None, p)`",
        ),
        Call(
            "`configure_spark_with_delta_pip(builder)`",
            "",
            "`delvec.configure(builder)`, or `delvec.session()`",
        ),
        Call(
            "hadoop configuration",
            "`storage_options={…}`",
            "the session's configuration, or `storage_options={…}`",
        ),
        Call("", "`Schema`, `Field`, `DataType`, `VariantType`", _SCHEMA),
    ),
    "Reading": (
        Call(
            '`t.toDF()`, `spark.read.format("delta").load(p)`',
            "",
            '`t.to_df()`, `spark.read.format("delvec").load(p)`',
        ),
        Call("`t.alias(name)`", "", "conditions call the table `t`; `t.merge(…, target_alias=…)`"),
        Call("", "`t.to_pyarrow_table(filters=…)`", "`t.to_arrow(where, columns)`"),
        Call(
            "",
            "`t.to_pyarrow_dataset()`, `t.scan()`",
            "`t.to_batches(where, columns)`, which streams; `t.to_df()` on Spark",
        ),
        Call(
            "",
            "`t.to_pandas()`, `pl.read_delta(p)`",
            "`t.to_pandas()`, `t.to_polars()`; DuckDB, Polars and pyarrow read the table as an"
            " Arrow stream",
        ),
        Call(
            "",
            '`QueryBuilder().register("t", t).execute(sql)`',
            '`t.to_df().createOrReplaceTempView("t")`, then `spark.sql`; without Spark, DuckDB and'
            " Polars take the table itself",
        ),
        Call(
            '`option("versionAsOf", 3)`',
            "`DeltaTable(p, version=3)`, `t.load_as_version(3)`",
            "`t.to_df(version=3)`, `t.to_arrow(version=...)`, also `timestamp=`",
        ),
        Call("", "`t.update_incremental()`", _NEWEST),
        Call("", "`t.count()`", "`t.count()`"),
        Call("`t.history()`", "`t.history()`", "`t.history()`, `t.arrow_history()`"),
        Call(
            "`t.detail()`",
            "`t.metadata()`, `Metadata`, `t.protocol()`, `t.schema()`, `t.version()`",
            "`t.detail()`, `t.protocol`, `t.schema`, `t.version`: properties, without parentheses",
        ),
        Call("", "`t.table_config`, `t.table_uri`", "`t.properties`, `t.storage.root`"),
        Call("", "`t.file_uris()`, `t.get_add_actions()`, `t.partitions()`", _FILES_OF),
        Call("", "`t.deletion_vectors()`", f"{_FILES_OF}, whose column `deletion_vector` has them"),
        Call(
            '`option("readChangeFeed", "true")`',
            "`t.load_cdf(starting_version=3)`",
            "`t.changes(start_version=3)`",
        ),
        Call("", "`t.transaction_version(a)`", "nothing: write with `txn_app_id=…`"),
    ),
    "Writing": (
        Call(
            '`df.write.format("delta").mode("append").save(p)`',
            '`write_deltalake(p, data, mode="append")`',
            _APPEND,
        ),
        Call('`.mode("overwrite")`', '`mode="overwrite"`', "`t.overwrite(df)`"),
        Call('`.option("replaceWhere", c)`', "`predicate=c`", "`t.overwrite(df, where=c)`"),
        Call(
            '`.option("partitionOverwriteMode", "dynamic")`',
            "",
            '`t.overwrite(df, partitions="dynamic")`',
        ),
        Call('`.option("mergeSchema", "true")`', '`schema_mode="merge"`', "`merge_schema=True`"),
        Call(
            '`.option("overwriteSchema", "true")`',
            '`schema_mode="overwrite"`',
            "`t.overwrite(df, replace_schema=True)`",
        ),
        Call(
            '`.option("txnAppId", a)`, `.option("userMetadata", m)`',
            "`CommitProperties(…)`, `Transaction(…)`",
            _COMMIT,
        ),
        Call("", "`WriterProperties`, `ColumnProperties`, `BloomFilterProperties`", _FILES),
        Call(
            "",
            "`PostCommitHookProperties`",
            "the property `delta.checkpointInterval` says when checkpoints are written;"
            " `t.clean_log()` cleans the log",
        ),
        Call("", "`t.create_write_transaction(…)`", "`t.append(df)`: delvec writes the files"),
        Call(
            "`t.delete(condition)`",
            "`t.delete(predicate)`",
            '`t.delete(where)`; `t.delete(keys=df, on=["id"])` deletes by key',
        ),
        Call(
            "`t.update(condition, set)`",
            "`t.update(updates=…, predicate=…)`",
            "`t.update(set, where)`; delta-spark's order works too",
        ),
        Call(
            '`t.alias("t").merge(df.alias("s"), c)`',
            '`t.merge(data, c, source_alias="s", target_alias="t")`',
            "`t.merge(df, on=c)`: the aliases are `t` and `s`",
        ),
        Call(
            "`.whenMatchedUpdateAll()`, `.whenNotMatchedInsertAll()`, …",
            "`.when_matched_update_all()`, …",
            "`.when_matched_update_all()`, `.when_not_matched_insert_all()`, …, `.execute()`",
        ),
        Call("`.withSchemaEvolution()`", "", "`t.merge(source, on, merge_schema=True)`"),
    ),
    "Maintaining": (
        Call("`t.optimize().executeCompaction()`", "`t.optimize.compact()`", "`t.optimize()`"),
        Call(
            "`t.optimize().where(\"day > '2026-01-01'\").executeCompaction()`",
            "`t.optimize.compact(partition_filters=…)`",
            "`t.optimize(\"day > '2026-01-01'\")`, see below",
        ),
        Call(
            '`t.optimize().executeZOrderBy("a", "b")`',
            '`t.optimize.z_order(["a", "b"])`',
            '`t.optimize(zorder_by=["a", "b"])`',
        ),
        Call("`REORG TABLE … APPLY (PURGE)`", "", "`t.purge()`"),
        Call(
            "`t.vacuum(168)`",
            "`t.vacuum(dry_run=False)`: a dry run by default; with `full=True` it deletes live"
            " vector files older than the retention",
            "`t.vacuum()`: deletes by default, `dry_run=True` lists",
        ),
        Call(
            "`t.restoreToVersion(3)`, `t.restoreToTimestamp(…)`",
            "`t.restore(3)`",
            "`t.restore(version=3)`, also `timestamp=`",
        ),
        Call(
            "`FSCK REPAIR TABLE` (Databricks)",
            "`t.repair()`",
            "`t.check(repair=True)`: never forgets a lost file",
        ),
        Call(
            '`t.generate("symlink_format_manifest")`', "`t.generate()`", "`t.generate_manifest()`"
        ),
        Call("`t.clone(p, True)`", "", "`t.clone(p)`"),
        Call(
            "`t.addFeatureSupport(f)`, `t.upgradeTableProtocol(r, w)`",
            "`t.alter.add_feature(…)`, `TableFeatures`",
            '`t.add_feature("deletionVectors")`: features are strings',
        ),
        Call(
            '`t.dropFeatureSupport("deletionVectors")`',
            "",
            "`t.drop_deletion_vectors()`; other features only delta-spark drops, by"
            " `ALTER TABLE … DROP FEATURE`",
        ),
        Call(
            "`ALTER TABLE … SET TBLPROPERTIES`",
            "`t.alter.set_table_properties({…})`",
            "`t.set_properties({…})`",
        ),
        Call("`ALTER TABLE … ADD COLUMN`", "`t.alter.add_columns(…)`", "`t.add_columns(…)`"),
        Call(
            "",
            "`t.alter`",
            "`add_columns()`, `rename_column()`, `drop_column()`, `add_constraint()`,"
            " `set_properties()` or `add_feature()` of the table itself",
        ),
        Call(
            "`ALTER TABLE … ADD CONSTRAINT`",
            "`t.alter.add_constraint({…})`",
            "`t.add_constraint(name, sql)`",
        ),
        Call(
            "`ALTER TABLE … DROP CONSTRAINT`",
            "`t.alter.drop_constraint(name)`",
            "`t.drop_constraint(name)`",
        ),
        Call(
            "`ALTER TABLE … ALTER COLUMN`, `COMMENT ON TABLE`",
            "`t.alter.drop_column_not_null(…)`, `t.alter.set_column_metadata(…)`,"
            " `t.alter.set_table_description(…)`, `t.alter.set_table_name(…)`",
            "the statements, in a session that `enable_sql` has opened",
        ),
        Call("", "`t.create_checkpoint()`, `t.compact_logs()`", "`t.checkpoint()`"),
        Call("automatic at checkpoints", "`t.cleanup_metadata()`", "`t.clean_log()`"),
    ),
}

_ICEBERG: Final = '`delvec.convert(spark, table, "lake.db.orders")`'
RULES: Final = (
    Rule(
        "string",
        r"\bDeltaSparkSessionExtension\b|\.delta\.catalog\.DeltaCatalog\b",
        "leave it out: `delvec.session()` or `delvec.enable_sql(spark)` takes its place",
        "`spark.sql.extensions`, `spark.sql.catalog.spark_catalog`",
    ),
    Rule(
        "string",
        r"io\.delta:delta-|\bdelta-(spark|core|storage)_?[\w.-]*\.jar\b",
        "leave the jar out: beside it the door stays closed",
        "`spark.jars.packages`, `spark.jars`",
    ),
    Rule(
        "string",
        r"^spark\.databricks\.delta\.properties\.defaults\.",
        "`TBLPROPERTIES` of each CREATE TABLE",
        "`spark.databricks.delta.properties.defaults.*`",
    ),
    Rule(
        "string",
        r"^spark\.databricks\.delta\.(autoCompact|optimizeWrite)\.",
        "`OPTIMIZE`, when you want it",
        "`spark.databricks.delta.autoCompact.*`, `optimizeWrite.*`",
    ),
    Rule(
        "jvm",
        r"\b_?jvm\.(io\.delta|org\.apache\.spark\.sql\.delta)\b",
        "`DeltaTable` of `delvec.compat.delta_spark`, or SQL: there are no such classes of Java",
        "`spark._jvm.io.delta…`",
    ),
    Rule(
        "call",
        r"^DeltaTable\.clone\w*\((?!.*\bTrue\b)",
        "`t.clone(target, isShallow=True)`; to copy rows, read and save them",
        "`t.clone(p)`: a deep clone",
    ),
    Rule(
        "call",
        r"^DeltaTable\.clone\w*\(.*(replace=True|True, True)",
        "`DROP TABLE`, then `t.clone(target, isShallow=True)`",
        "`t.clone(p, True, replace=True)`",
    ),
    Rule(
        "call",
        r"^DeltaTable\.convertToDelta\([^,]*, f?['\"](?!parquet\.)",
        '`"parquet.…"` with the path of the folder',
        "`DeltaTable.convertToDelta(spark, name)`",
    ),
    Rule(
        "call",
        r"^DeltaTable\.dropFeatureSupport\((featureName=)?['\"](?!deletionVectors['\"])",
        "drop it by delta-spark; delvec drops `deletionVectors` only",
        "`t.dropFeatureSupport(another)`",
    ),
    Rule(
        "chain",
        r"^option\('dataChange', '?false",
        "`OPTIMIZE`, or `t.optimize()`: it moves rows and changes none",
        '`option("dataChange", "false")`',
    ),
    Rule(
        "chain",
        r"^outputMode\('update'",
        'merge in `foreachBatch`, or `outputMode("complete")`',
        '`outputMode("update")`',
    ),
    Rule("sql", r"\bUNIFORM\b|\bdelta\.universalFormat\.", _ICEBERG, "UniForm"),
    Rule(
        "sql",
        r"^ANALYZE TABLE ",
        "leave it out for Delta tables: writes keep statistics; `t.recompute_statistics()`"
        " completes them",
        "`ANALYZE TABLE`",
    ),
    Rule(
        "sql",
        r" DROP FEATURE (?!['\"]?deletionVectors\b)",
        "drop it by delta-spark; delvec drops `deletionVectors` only",
        "`DROP FEATURE` of another feature",
    ),
    Rule(
        "sql",
        r"^CONVERT TO DELTA (?!parquet ?\.)",
        "``CONVERT TO DELTA parquet.`/path` ``",
        "`CONVERT TO DELTA` of a name, or of Iceberg",
    ),
    Rule(
        "sql",
        r"^CREATE [^(]* (DEEP CLONE|(?<!SHALLOW )CLONE)\b",
        "`SHALLOW CLONE`; to copy rows, `CREATE TABLE … AS SELECT`",
        "`DEEP CLONE`",
    ),
    Rule("sql", r"^FSCK REPAIR TABLE ", "`CHECK TABLE t REPAIR`", "`FSCK REPAIR TABLE`"),
    Rule("sql", r"^COPY INTO ", "`INSERT INTO t SELECT … FROM parquet.…`", "`COPY INTO`"),
)

# What the calls of delta-spark and deltalake return, as far as it has calls of its own; a builder
# returns itself.
DELTA_SPARK: Final[Mapping[str, Mapping[str, str]]] = {
    "": {"configure_spark_with_delta_pip": ""},
    "DeltaTable": {
        **dict.fromkeys(("forPath", "forName", "convertToDelta", "alias"), "DeltaTable"),
        **dict.fromkeys(("clone", "cloneAtVersion", "cloneAtTimestamp"), "DeltaTable"),
        **dict.fromkeys(("create", "createIfNotExists"), "DeltaTableBuilder"),
        **dict.fromkeys(("replace", "createOrReplace"), "DeltaTableBuilder"),
        "merge": "DeltaMergeBuilder",
        "optimize": "DeltaOptimizeBuilder",
    },
    "DeltaMergeBuilder": {"execute": ""},
    "DeltaOptimizeBuilder": {"executeCompaction": "", "executeZOrderBy": ""},
    "DeltaTableBuilder": {"execute": "DeltaTable"},
    "IdentityGenerator": {},
}
DELTALAKE: Final[Mapping[str, Mapping[str, str]]] = {
    "": {"write_deltalake": "", "convert_to_deltalake": ""},
    "DeltaTable": {
        "create": "DeltaTable",
        "alter": "TableAlterer",
        "merge": "TableMerger",
        "optimize": "TableOptimizer",
    },
    "QueryBuilder": {"execute": ""},
    "TableAlterer": {},
    "TableMerger": {"execute": ""},
    "TableOptimizer": {},
}
_SPELLED: Final = re.compile(
    r"`(t\.|DeltaTable\.|\.(?=w)|(?!option))(alter\.|optimize\.)?([A-Za-z]\w+)(?=[(`])"
)
_BUILDERS: Final = {"alter.": "TableAlterer", "optimize.": "TableOptimizer"}
# The classes of others whose names people look for in a class of delvec's.
_LIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "DeltaTable": ("DeltaTable", "TableAlterer", "TableOptimizer"),
    "MergeBuilder": ("DeltaMergeBuilder", "TableMerger"),
    "delvec": ("",),
}
# Names of others that delvec's objects do not have, see `explain_name`, and are no calls of tables.
_OF_ICEBERG: Final[Mapping[str, str]] = {
    "currentsnapshot": "`snapshots()` or `detail()`",
    "forpath": '`for_name(spark, "catalog.database.table")`',
    "maintenance": "`expire_snapshots()` or `remove_orphan_files()`",
    "managesnapshots": "`create_branch()`, `create_tag()`, `rollback()` or `fast_forward()`",
    "merge": '`upsert(df, keys=["id"])`',
    "metadata": "`detail()`",
    "optimize": "`compact()`",
    "overwrite": "Spark does that: `df.writeTo(name).overwritePartitions()`",
    "refresh": _NEWEST,
    "rewritedatafiles": "`compact()`",
    "scan": "`to_df(where=..., columns=...)`",
    "update": '`upsert(df, keys=["id"])`',
    "updateschema": "Spark does that: ALTER TABLE",
    "updatespec": "Spark does that: ALTER TABLE",
    "vacuum": "`expire_snapshots()`, then `remove_orphan_files()`",
}
_OF_REPORT: Final[Mapping[str, str]] = {
    "executecompaction": "optimize() compacts by itself",
    "executezorderby": "the columns are an argument: optimize(zorder_by=[...])",
    "where": "the condition is an argument: optimize(where)",
}
_OWN: Final = {"IcebergTable": _OF_ICEBERG, "WriteReport": _OF_REPORT}


def plain(name: str) -> str:
    """Return a name as it is compared: without case and underscores."""
    return name.replace("_", "").lower()


def hint_for(owner: str, name: str) -> str | None:
    """Return what to call instead of a name that a class of delvec does not have.

    >>> hint_for("DeltaTable", "to_pyarrow_table")
    'call t.to_arrow(where, columns)'
    """
    found = _OWN.get(owner, {}).get(plain(name))
    keys = [(each, plain(name)) for each in _LIKE.get(owner, ())]
    libraries: tuple[Library, ...] = ("deltalake", "delta-spark")
    for known in map(names, libraries):
        found = found or next((known[key] for key in keys if key in known), None)
    if found is None:
        return None
    verb = "call " if re.match(r"`[^`]*\(", found) else "look at " if found[0] == "`" else ""
    return verb + unquoted(found)


def unquoted(markdown: str) -> str:
    """Return a text without the back quotes around code.

    >>> unquoted("`a(b)`, or ``delta.`c` ``")
    'a(b), or delta.`c`'
    """
    return re.sub(r"``(.+?) ``|`([^`]*)`", lambda match: match[1] or match[2], markdown)


def rule_for(of: str, text: str) -> Rule | None:
    """Return the rule that a text breaks, if it breaks one."""
    return next(
        (each for each in RULES if each.of == of and re.search(each.pattern, text, re.IGNORECASE)),
        None,
    )


@cache
def names(library: Library) -> Mapping[tuple[str, str], str]:
    """Return what delvec has for a name of a library, by its class, empty for the module."""
    found: dict[tuple[str, str], str] = {}
    for call in (call for calls in CALLS.values() for call in calls):
        text = call.deltalake if library == "deltalake" else call.delta_spark
        for owner, name in _spelled(text, library):
            found.setdefault((owner, plain(name)), call.delvec)
    return found


def _spelled(text: str, library: Library) -> Iterator[tuple[str, str]]:
    merges = "TableMerger" if library == "deltalake" else "DeltaMergeBuilder"
    for before, part, name in _SPELLED.findall(text):
        owner = {"": "", ".": merges}.get(before, "DeltaTable")
        yield (_BUILDERS.get(part, owner) if owner else "", name)
