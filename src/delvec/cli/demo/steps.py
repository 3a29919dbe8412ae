"""The steps on Spark: rows of Delta and Iceberg tables deleted, replaced, converted and erased.

Readers of a table are compared by the number of rows and sums over them, at the newest version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.convert import convert
from delvec.delta.table import DeltaTable
from delvec.errors import DelvecError
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.table import IcebergTable
from delvec.identifiers import sql_string
from delvec.report.format import format_count, format_size
from delvec.spark.expressions import row_sums
from delvec.spark.jobs import describe_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.cli.demo.demo import Tour
    from delvec.conversion.apply import ConversionReport

BLIND: Final = "Spark, bare Parquet"  # the reader that does not look at the log
ACCOUNTS: Final = "lake.demo.accounts"
CONVERTED: Final = "lake.demo.orders"
_WHERE: Final = "id % 10 = 7"
_MORE: Final = "id % 10 = 8"
_UPDATE: Final = "UPDATE orders SET status = 'paid' WHERE cents < 500"
_MERGE: Final = """MERGE INTO orders t USING changes s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *"""
_UPSERTS: Final = (
    "SELECT id, 100L balance FROM range(95000, 101000)",
    "SELECT id, 200L balance FROM range(100500, 102000)",
)
# No other address has this part, and Parquet's compression leaves it as it is.
_MARK: Final = "maria.keller"
_EMAIL: Final = f"{_MARK}@example.com"
# In no file is hers the least or the greatest address, which statistics would show.
_EMAILS: Final = (
    f"if(customer = 7, '{_EMAIL}', concat(element_at(array('anna', 'ben', 'tom', 'zoe'),"
    " cast(customer % 4 AS int) + 1), customer, '@example.com')) email"
)


class Step(NamedTuple):
    """A step: its key in the document for programs, what it does, and what is said of it."""

    name: str
    show: Callable[[Tour, SparkSession], dict[str, Any]]
    title: str
    why: str
    calls: list[str]
    on_iceberg: bool = False


def show_steps(tour: Tour, spark: SparkSession, *, iceberg: bool) -> dict[str, Any]:
    """Show all steps, or those on Delta tables."""
    result = {}
    for step in STEPS:
        if iceberg or not step.on_iceberg:
            tour.begin(step.title, step.calls)
            with describe_jobs(spark, f"delvec demo, {step.name}"):
                result[step.name] = step.show(tour, spark)
            tour.why(step.why)
    return result


def _show_delete(tour: Tour, spark: SparkSession) -> dict[str, Any]:
    ids = spark.range(0, 200_000, 1, 4)
    rows = ids.selectExpr("id", "'open' status", "id * 7919 % 100000 cents")
    table = DeltaTable.create(spark, tour.path("orders"), rows.schema)
    table.append(rows)
    files, readers = _data_files(table), _readers(tour, spark, table)
    before = {name: _sums(read()) for name, read in readers.items()}
    report = table.delete(_WHERE)
    after = {name: _sums(read()) for name, read in readers.items()}
    expected, *_ = after.values()
    shown = [
        {
            "reader": name,
            "before": before[name][0],
            "after": found[0],
            "agrees": "yes" if found == expected else f"no, {found[0] - expected[0]:+,}",
        }
        for name, found in after.items()
    ]
    tour.table(shown, "reader=read by", "before", "after", "agrees=same rows")
    same = _data_files(table) == files
    compared = "the same names, sizes, times and SHA-256" if same else "CHANGED"
    tour.fact(f"{format_count(len(files), 'data file')}: ", (compared, "bold green"))
    data = format_size(sum(each["size"] for each in files.values()))
    vectors = format_count(report.vectors_added, "deletion vector")
    size = format_size(report.vector_bytes)
    tour.fact(f"written: {vectors}, {size}, instead of {data} of new files")
    document = {"table": table.storage.root, "report": report.to_json(), "readers": shown}
    return {**document, "files": files, "files_unchanged": same}


def _show_writes(tour: Tour, spark: SparkSession) -> dict[str, Any]:
    table = DeltaTable.for_path(spark, tour.path("orders"))
    spark.sql(f"CREATE TABLE orders USING delta LOCATION {sql_string(table.storage.root)}")
    changes = spark.range(199_000, 201_000).selectExpr("id", "'sent' status", "id cents")
    changes.createOrReplaceTempView("changes")
    files = set(_data_files(table))
    commits: list[dict[str, Any]] = []
    for statement in (_UPDATE, _MERGE):
        counts = spark.sql(statement).collect()[0].asDict()
        named = {name.split("_")[1]: count for name, count in counts.items()}
        rows = spark.sql("SELECT count(*) FROM orders").collect()[0][0]
        commits.append({"statement": statement.partition(" ")[0], **named, "rows": rows})
    tour.table(commits, "statement", "affected", "updated", "inserted", "rows=rows now")
    kept = len(files & set(table.arrow_files()["path"].to_pylist()))
    tour.fact(f"data files rewritten: {len(files) - kept} of {len(files)}")
    tour.fact(f"version 1 still has its {table.count(version=1):,} rows")
    return {"commits": commits, "rewritten": len(files) - kept, "rows": table.count()}


def _show_keys(tour: Tour, spark: SparkSession) -> dict[str, Any]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.demo")
    spark.sql(
        f"CREATE TABLE {ACCOUNTS} (id BIGINT, balance BIGINT) USING iceberg TBLPROPERTIES"
        " ('format-version'='3', 'write.delete.equality-vector.enabled'='true')"
    )
    table = IcebergTable.for_name(spark, ACCOUNTS)
    table.append(spark.range(0, 100_000, 1, 2).selectExpr("id", "0L balance"))
    table.create_branch("staging", staging=True)
    before, _ = _branch(spark, table, "main before", "main")
    upserts = [table.upsert(spark.sql(rows), "id", branch="staging") for rows in _UPSERTS]
    staged, expected = _branch(spark, table, "staging", "staging")
    report = table.resolve("id", staging="staging")
    after, found = _branch(spark, table, "main after", "main")
    branches = [before, staged, after]
    tour.table(
        branches, "where=branch", "edvs=EDVs", "vectors", "rows=delvec", "stock=stock Iceberg"
    )
    keys = format_count(sum(each.keys for each in upserts), "key")
    size = format_size(sum(each.vector_bytes for each in upserts))
    rows = format_count(report.rows_deleted, "old row")
    tour.fact(f"{keys} staged in {size}, no data file read; resolve found {rows}")
    same = found == expected
    tour.fact("main has the rows of the staging branch: ", ("yes" if same else "no", "bold green"))
    documents = [each.to_json() for each in upserts]
    result = {"table": ACCOUNTS, "upserts": documents, "report": report.to_json()}
    return {**result, "branches": branches, "same_as_staged": same}


def _show_conversion(tour: Tour, spark: SparkSession) -> dict[str, Any]:
    table = DeltaTable.for_path(spark, tour.path("orders"))
    reports = [convert(spark, table, CONVERTED)]
    rows = [_converted(spark, table, reports[0])]
    table.delete(_MORE)
    reports.append(convert(spark, table, CONVERTED))
    rows.append(_converted(spark, table, reports[1]))
    shown = [{**each, "mode": each["mode"].replace("incremental", "new only")} for each in rows]
    titles = ("mode=conversion", "files", "vectors", "delta=Delta", "iceberg=Iceberg", "same")
    tour.table(shown, *titles)
    files = [each["file_path"] for each in spark.table(f"{CONVERTED}.data_files").collect()]
    own = tuple(f"/orders/{path}" for path in table.arrow_files()["path"].to_pylist())
    shared = sum(path.endswith(own) for path in files)
    size = format_size(sum(each.vector_bytes for each in reports))
    of = f"{shared} of {format_count(len(files), 'data file')}"
    tour.fact(f"{of} of the Iceberg table are Delta's own; {size} of vectors")
    documents = [each.to_json() for each in reports]
    result = {"target": CONVERTED, "reports": documents, "rows": rows}
    return {**result, "shared_files": shared, "files": len(files)}


def _show_erasing(tour: Tour, spark: SparkSession) -> dict[str, Any]:
    rows = spark.range(0, 60_000, 1, 3).selectExpr("id % 1000 customer", "id cents")
    rows = rows.selectExpr("customer", _EMAILS, "cents")
    table = DeltaTable.create(spark, tour.path("customers"), rows.schema)
    steps: dict[str, Callable[[], object]] = {
        "append": lambda: table.append(rows),
        "delete": lambda: table.delete("customer = 7"),
        "purge": table.purge,
        "vacuum": lambda: table.vacuum(0, force=True),
    }
    found: list[dict[str, Any]] = []
    for name, act in steps.items():
        act()
        left = table.traces(f"email = '{_EMAIL}'")
        counts = {
            kind: sum(each.rows or 0 for each in left.places if each.kind == kind)
            for kind in ("live", "deleted", "removed")
        }
        keys = [info.key for info in table.storage.list(recursive=True)]  # the log's too
        raw = sum(_MARK.encode() in table.storage.read(key) for key in keys)
        found.append({"step": name, **counts, "raw": raw})
    tour.fact("\nher rows, wherever they physically are:")
    shown = [{**each, "raw": f"{each['raw'] or 'no'} files"} for each in found]
    titles = ("step=after", "live", "deleted=hidden", "removed=old files", "raw=her bytes in")
    tour.table(shown, *titles)
    places = format_count(len(left.places), "place") if left else "nothing"
    searched = f"all bytes below the table searched for {_MARK!r}"
    tour.fact(f"{searched}; traces finds ", (places, "bold green"))
    result = {"table": table.storage.root, "steps": found, "traces": left.to_json()}
    return {**result, "rows": table.count()}


def _show_page(tour: Tour, _: SparkSession) -> dict[str, Any]:
    report = DeltaTable.for_path(None, tour.path("orders")).inspect()
    if tour.is_kept and "://" not in tour.storage.root:
        file = tour.path("report.html")
    else:
        handle, file = mkstemp(prefix="delvec-demo-", suffix=".html")
        os.close(handle)
    page = str(report.write_html(file))
    tour.fact(" ")  # an empty line
    tour.output.lines(report.lines)
    tour.fact("\nwritten, and kept: ", (page, "bold"))
    return {"path": page, "report": report.to_json()}


STEPS: Final = (
    Step(
        "delete",
        _show_delete,
        "Delete rows; the data files stay as they are.",
        "A delete costs what it deletes. (The bytes are still there: see below.)",
        [
            'table = delvec.DeltaTable.create(spark, "orders", rows.schema)',
            "table.append(rows)",
            f'table.delete("{_WHERE}")',
        ],
    ),
    Step(
        "writes",
        _show_writes,
        "UPDATE and MERGE INTO by name, in plain spark.sql, without a jar.",
        "Replaced rows go into vectors, new ones into a file; one commit each.",
        [f'spark.sql("{_UPDATE}")', *f'spark.sql("""{_MERGE}""")'.splitlines()],
    ),
    Step(
        "keys",
        _show_keys,
        "Upserts by key, staged as Equality Delete Vectors (EDVs), then resolved.",
        "Writers never wait, and every Iceberg v3 engine reads the result.",
        [
            'table.upsert(rows, "id", branch="staging")   # twice',
            'table.resolve("id", staging="staging")',
        ],
        on_iceberg=True,
    ),
    Step(
        "conversion",
        _show_conversion,
        "The Delta table as Iceberg: data files shared, vectors copied as bytes.",
        "One copy of the data for both formats; a conversion costs what changed.",
        [
            f'delvec.convert(spark, table, "{CONVERTED}")',
            f'table.delete("{_MORE}"); delvec.convert(...)   # what is new',
            f'spark.table("{CONVERTED}").count()   # stock Iceberg',
        ],
        on_iceberg=True,
    ),
    Step(
        "erasing",
        _show_erasing,
        "Erase a person for good: a delete hides rows, these calls remove them.",
        "Until purge and vacuum have run, a deleted person is still in your files.",
        [
            'table.delete("customer = 7"); table.purge()',
            "table.vacuum(0, force=True)   # for real table.vacuum(), a week later",
            f"table.traces(\"email = '{_EMAIL}'\")   # proves it",
        ],
    ),
    Step(
        "page",
        _show_page,
        "What a table is made of, and what to run next, on a page with charts.",
        "Open it in a browser: no script, no network, made to be kept or sent.",
        ["report = table.inspect()", 'print(report); report.write_html("report.html")'],
    ),
)


def _data_files(table: DeltaTable) -> dict[str, dict[str, Any]]:
    return {
        info.key: {
            "size": info.size,
            "modified_ms": info.modified_ms,
            "sha256": sha256(table.storage.read(info.key)).hexdigest(),
        }
        for info in table.storage.list(recursive=True)
        if info.key.endswith(".parquet") and not info.key.startswith("_")
    }


def _readers(
    tour: Tour, spark: SparkSession, table: DeltaTable
) -> dict[str, Callable[[], pa.Table]]:
    path = table.storage.root
    bare = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    found: dict[str, Callable[[], pa.Table]] = {
        "delvec on Spark": lambda: table.to_df().toArrow(),
        "delvec without a JVM": lambda: DeltaTable.for_path(None, path).to_arrow(),
    }
    if find_spec("deltalake") is None:
        tour.fact(("delta-rs is not asked: it is not installed (pip install deltalake)", "dim"))
    else:
        import deltalake  # noqa: PLC0415 - delvec itself does not need it

        def by_delta_rs() -> pa.Table:
            query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
            return pa.table(query.execute("SELECT id, cents FROM t").read_all())

        found[f"delta-rs {deltalake.__version__}"] = by_delta_rs
    return {**found, BLIND: lambda: bare.parquet(path).toArrow()}


def _sums(rows: pa.Table) -> tuple[int, ...]:
    return (rows.num_rows, *(pc.sum(rows[name]).as_py() for name in ("id", "cents")))


def _branch(
    spark: SparkSession, table: IcebergTable, where: str, branch: str
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return what delvec and stock Iceberg say of a branch, and the sums of its rows."""
    detail, stock = table.detail(branch=branch), spark.read.option("branch", branch).table(ACCOUNTS)
    sums = row_sums(table.to_df(branch), stock.schema)
    found = {
        "where": where,
        "edvs": detail.equality_delete_vectors,
        "vectors": detail.deletion_vectors,
        "rows": sums[0],
        "stock": _answer(stock),
    }
    return found, sums


def _answer(rows: DataFrame) -> str:
    """Return how many rows there are, or that the branch is refused: keys are no positions."""
    try:
        with translate_errors(ACCOUNTS):
            return f"{rows.count():,}"
    except DelvecError as error:
        if "is not a Parquet file" not in f"{error} {error.__cause__}":
            raise
        return "refuses"


def _converted(spark: SparkSession, table: DeltaTable, report: ConversionReport) -> dict[str, Any]:
    """Return what a conversion did, and whether stock Iceberg reads the rows of the source."""
    target = spark.table(CONVERTED)
    delta, iceberg = (row_sums(side, target.schema) for side in (table.to_df(), target))
    return {
        "mode": report.mode,
        "files": report.files_added,
        "vectors": report.vectors_added + report.vectors_replaced,
        "delta": delta[0],
        "iceberg": iceberg[0],
        "same": "yes" if delta == iceberg else "no",
    }
