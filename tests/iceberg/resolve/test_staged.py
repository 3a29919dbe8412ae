"""Which changes of a staging branch are taken over: each once, whatever happens to snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import IcebergTable
from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.file_scan import write_data_files
from delvec.iceberg.commit.marks import read_progress
from tests.iceberg.deletes.tables import by_pyiceberg, deletes_of, open_new

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, n int, s string"


def pairs_of(rest: list[str]) -> list[tuple[int, int]]:
    """Read `4:1 5`: ids and their n, which is 0 by default."""
    found = [each.partition(":") for each in rest]
    return [(int(id_), int(n or 0)) for id_, _, n in found]


def frame(table: IcebergTable, *pairs: tuple[int, int]) -> DataFrame:
    values = [(id_, n, f"s{id_}") for id_, n in pairs]
    return table.spark.createDataFrame(values, COLUMNS)


def require(table: IcebergTable, pairs: list[tuple[int, int]]) -> None:
    """Compare what stock Iceberg reads, and PyIceberg where it can."""
    table.spark.catalog.refreshTable(table.name)
    found = table.spark.table(table.name).select("id", "n").collect()
    assert sorted(map(tuple, found)) == pairs
    if table.format_version == 3:
        assert by_pyiceberg(table.spark, table.name) == [id_ for id_, _ in pairs]


def resolve(table: IcebergTable, rest: list[str], **options: Any) -> None:  # noqa: ANN401
    """Resolve with the options that are named, and compare figures of the report."""
    figures = dict(each.split("=") for each in rest if "=" in each)
    for each in OPTIONS.keys() & rest:
        options |= OPTIONS[each]
    report = table.resolve(**options)
    assert {name: str(getattr(report, name)) for name in figures} == figures
    assert "noted" not in rest or "by position" in report.notes[0]
    assert {content for content, _, _ in deletes_of(table.spark, table.name)} <= {1}


OPTIONS: dict[str, dict[str, Any]] = {
    "verify": {"verify": "rows"},
    "restart": {"restart_staging": True},
    "single": {"max_snapshots": 1},
    "unique": {"keys": "id", "unique_keys": True},
}


def refused(table: IcebergTable, _: str, words: list[str]) -> None:
    with pytest.raises(PlanError, match=" ".join(words) or "."):
        table.resolve(staging="st")


def append(table: IcebergTable, branch: str, rest: list[str], **options: Any) -> Any:  # noqa: ANN401
    return table.append(frame(table, *pairs_of(rest)), branch=branch, **options)


def transaction(table: IcebergTable, branch: str, rest: list[str], *, replayed: bool) -> None:
    report = append(table, branch, rest, txn_app_id="app", txn_version=7)
    assert report.replayed is replayed


def parent(table: IcebergTable, branch: str) -> int:
    return [each.id for each in table._load().metadata.ancestors(branch)][1]


def expire(table: IcebergTable) -> None:
    table.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table.name}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )


def rewrite_branch(table: IcebergTable, branch: str) -> None:
    """Rewrite all data files of a branch, as a compaction does."""
    own = table._load()
    rows = table.spark.sql(f"SELECT * FROM {table.name} VERSION AS OF '{branch}'")
    head = own.metadata.refs[branch].snapshot_id
    rewrite = own.handle.newRewrite().toBranch(branch).validateFromSnapshot(head)
    files = own.handle.newScan().useRef(branch).planFiles().iterator()
    while files.hasNext():
        rewrite.deleteFile(files.next().file())
    view = iceberg_view(table.spark)
    for text in write_data_files(own, rows.localCheckpoint()).to_pylist():
        node = view.util.JsonUtil.mapper().readTree(text)
        rewrite.addFile(view.ContentFileParser.fromJson(node, own.handle.specs()))
    rewrite.commit()


def call(table: IcebergTable, procedure: str, snapshot_id: int) -> None:
    table.spark.sql(f"CALL lake.system.{procedure}('{table.name}', {snapshot_id})")


def require_progress(table: IcebergTable, branch: str) -> None:
    assert read_progress(table._load().metadata, branch, "st") is not None


ACTS: dict[str, Callable[[IcebergTable, str, list[str]], object]] = {
    "resolve": lambda table, _, rest: resolve(table, rest, staging="st"),
    "in-place": lambda table, at, rest: resolve(table, rest, target=at),
    "idle": lambda table, _, __: resolve(table, ["snapshot_id=None"], staging="st"),
    "refused": refused,
    "is": lambda table, _, rest: require(table, pairs_of(rest)),
    "append": append,
    "txn": lambda table, at, rest: transaction(table, at, rest, replayed=False),
    "replayed": lambda table, at, rest: transaction(table, at, rest, replayed=True),
    "upsert": lambda table, at, rest: table.upsert(frame(table, *pairs_of(rest)), "id", branch=at),
    "keys": lambda table, at, rest: table.delete_keys([*map(int, rest)], "id", branch=at),
    "delete": lambda table, at, rest: table.delete(f"id = {rest[0]}", branch=at),
    "sql-delete": lambda table, at, rest: table.spark.sql(
        f"DELETE FROM {table.name}.branch_{at} WHERE id = {rest[0]}"
    ),
    "copy-on-write": lambda table, _, __: table.spark.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')"
    ),
    "branch": lambda table, at, _: table.create_branch(at),
    "staging": lambda table, at, _: table.create_branch(at, staging=True),
    "tag": lambda table, _, __: table.create_tag("kept"),
    "compact": lambda table, _, __: table.compact(options={"rewrite-all": True}),
    "consolidate": lambda table, at, _: table.consolidate_deletes(at),
    "expire": lambda table, _, __: expire(table),
    "rewrite": lambda table, at, _: rewrite_branch(table, at),
    "rollback": lambda table, at, _: table.rollback(parent(table, at), branch=at),
    "stock-rollback": lambda table, at, _: call(table, "rollback_to_snapshot", parent(table, at)),
    "cherry-pick": lambda table, at, _: call(
        table, "cherrypick_snapshot", table._load().metadata.refs[at].snapshot_id
    ),
    "progress": lambda table, at, _: require_progress(table, at),
}


def run(table: IcebergTable, text: str) -> None:
    """Take steps such as `append 1 2 | upsert@st 2:1 | resolve keys=1 | is 1 2:1`.

    A step says what is done, after `@` on which branch, and with which ids; of a resolve, options
    and figures of its report.
    """
    for step in text.split(" | "):
        word, *rest = step.split()
        word, _, branch = word.partition("@")
        ACTS[word](table, branch or "main", rest)


# Keys 0 to 4, with a branch that has 4 updated and 5 added; the same with a staging branch.
STAGED = "append 0 1 2 3 4 | upsert@st 4:1 5:1 | "
OWN = "append 0 1 2 3 4 | staging@st | upsert@st 4:1 5:1 | "
IN_PLACE = (
    "append 0 1 2 3 4 5 6 7 8 9 | keys 2 3 99 | append 3 20 | upsert 5:1"
    " | in-place verify keys=4 absent=1 rows_deleted=3 | is 0 1 3 4 5:1 6 7 8 9 20"
    " | in-place snapshot_id=None"
)
TAKEN_OVER = (
    "upsert@st 5:1 100:1 | upsert@st 5:2 101:2 | keys@st 1 100 | append@st 100:3"
    " | is 0 1 2 3 4 5 6 7 8 9 | resolve verify unique keys=4 absent=1 rows_deleted=4"
    " | is 0 2 3 4 5:2 6 7 8 9 100:3 101:2 | idle | upsert@st 100:5"
    " | resolve staged_snapshots=1 keys=1 absent=0 | is 0 2 3 4 5:2 6 7 8 9 100:5 101:2"
)
KEPT = "append 1 | append 2 | tag | {} | upsert@st 2:1 3:1 | append 7 | append 8 | append 9"
ANEW = (
    "append 1 | {} | txn@st 2 | resolve restart | replayed@st 2 | expire | is 1 2"
    " | upsert@st 2:5 | resolve restart | is 1 2:5"
)
REWRITTEN = (
    "append 0 1 2 3 | branch@st | delete@st 1 | rewrite@st | upsert@st 9 | resolve | is 0 2 3 9"
)
STEPS = {
    "in place, format 2": IN_PLACE,
    "in place": IN_PLACE,
    "taken over, format 2": "append 0 1 2 3 4 5 6 7 8 9 | branch@st | " + TAKEN_OVER,
    "taken over": "append 0 1 2 3 4 5 6 7 8 9 | staging@st | " + TAKEN_OVER,
    "the fork has expired": STAGED + "append 9 | expire | resolve staged_snapshots=1"
    " | is 0 1 2 3 4:1 5:1 9",
    # The files before the fork may be gone.
    "the fork and its files have expired": OWN + "append 9 | compact | expire"
    " | resolve staged_snapshots=1 | is 0 1 2 3 4:1 5:1 9",
    "a snapshot that expired unread is refused": STAGED + "upsert@st 6 | expire"
    " | refused has expired before it was taken over | is 0 1 2 3 4",
    "snapshots that expired after a resolve are read from the newest": STAGED + "resolve"
    " | upsert@st 0:2 6:2 | keys@st 5 | upsert@st 6:3 | append 9 | expire | resolve verify"
    " | is 0:2 1 2 3 4:1 6:3 9 | idle",
    "progress outlives its snapshot": STAGED + "resolve | append 8 | append 9 | expire"
    " | progress | idle | is 0 1 2 3 4:1 5:1 8 9",
    "progress outlives its snapshot, which outlives newer ones": STAGED + "resolve | tag"
    " | append 8 | append 9 | expire | progress | idle | is 0 1 2 3 4:1 5:1 8 9",
    # The snapshot that took the changes over is gone for good.
    "a rollback of the target takes progress back": STAGED + "resolve | rollback | is 0 1 2 3 4"
    " | expire | resolve | is 0 1 2 3 4:1 5:1",
    "a rollback by stock Iceberg takes progress back": STAGED + "resolve | stock-rollback"
    " | is 0 1 2 3 4 | expire | resolve | is 0 1 2 3 4:1 5:1",
    "a rollback of the staging branch repeats nothing": STAGED + "upsert@st 6:2 | resolve"
    " | rollback@st | idle | upsert@st 0:3 | resolve | is 0:3 1 2 3 4:1 5:1 6:2",
    "deletes by position of rows of the target": STAGED + "delete@st 1 | sql-delete 2"
    " | resolve verify noted | is 0 3 4:1 5:1",
    "a data file that was removed on the staging branch": "append 1 | append 2 | branch@st"
    " | delete@st 1 | append@st 3 | delete@st 3 | resolve single | is 2",
    "deletes by position of rows that have moved are refused": STAGED + "delete@st 1 | append 9"
    " | compact | refused has rewritten or removed it | is 0 1 2 3 4 9",
    "new files that are rewritten with those of the target are refused": STAGED + "rewrite@st"
    " | refused was rewritten on branch st | is 0 1 2 3 4",
    "a rewrite of files that were taken over changes nothing": STAGED + "resolve | rewrite@st"
    " | idle | upsert@st 0:3 | resolve | is 0:3 1 2 3 4:1 5:1",
    "deletes by position of a file that is then rewritten": REWRITTEN,
    "deletes by position of a file that is then rewritten, format 2": REWRITTEN,
    "a rewrite on the staging branch does not bring rows back": "append 0 1 2 3 4 5 | branch@st"
    " | copy-on-write | sql-delete@st 1 | keys 2"
    " | refused rows of it, which would be there again | in-place"
    " | refused rows of it, which would be there again | is 0 1 3 4 5",
    "a cherry-picked snapshot is refused": "append 1 | append@st 2 | append 3 | cherry-pick@st"
    " | refused cherry-picked | is 1 2 3",
    "a cherry-picked snapshot that expired is refused": "append 1 | append@st 2 | append 3"
    " | cherry-pick@st | append 4 | expire | refused | is 1 2 3 4",
    "a branch that begins anew keeps its transactions": ANEW.format("branch@st"),
    "a staging branch that begins anew keeps its transactions": ANEW.format("staging@st"),
    # What the tag names stays, and is an ancestor of main that no one can see.
    "snapshots of the target that outlive newer ones are not staged": KEPT.format("staging@st")
    + " | expire | resolve | is 1 2:1 3:1 7 8 9",
    "a fork that outlives newer snapshots is refused": KEPT.format("branch@st")
    + " | expire | refused is not known | is 1 2 7 8 9",
    "a transaction whose snapshot outlives newer ones": "append 1 | txn 2 | tag | append 7"
    " | append 8 | expire | replayed 2 | is 1 2 7 8",
    "a commit that was rolled back does not come back by a branch made from it": "append 1"
    " | append 2 | staging@st | rollback | upsert@st 3 | resolve | is 1 3",
    # A resolve in place removes the files there, too.
    "a file that the target has removed as empty may be removed": "append 1 | append 2"
    " | keys@st 1 | append@st 5 | keys@st 5 | resolve | is 2 | in-place@st | upsert@st 3"
    " | resolve | is 2 3",
    "a target without snapshots": "staging@st | upsert@st 1 2 | upsert@st 2:1 | resolve verify"
    " | is 1 2:1",
}
# Found by random changes of the model: staged snapshots expire before they are taken over.
for fork in ("branch@st", "staging@st"):
    begin = f"append 0 1 2 3 4 5 | {fork} | keys@st 5 | "
    STEPS |= {
        f"merged deletes that expired are refused, {fork}": begin + "resolve | append 5 | keys@st 1"
        " | keys@st 2 | consolidate@st | expire | refused | is 0 1 2 3 4 5",
        f"snapshots of a branch that began again are refused, {fork}": begin + "append 70"
        " | resolve restart | keys@st 1 | append@st 60 | expire | refused | is 0 1 2 3 4 70",
        f"snapshots of before a compaction are refused, {fork}": begin + "append 70"
        " | resolve restart | keys@st 1 | append@st 60 | compact | expire | refused",
        f"snapshots of a branch that goes on are taken over, {fork}": begin + "append 70 | resolve"
        " | append 5 1:1 | keys@st 1 | append@st 60 | expire | resolve | is 0 2 3 4 5 60 70",
    }
QUICK = ("in place, format 2", "taken over, format 2")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in STEPS]
)
def test_changes_are_taken_over_once(spark: SparkSession, name: str) -> None:
    version = 2 if name.endswith("format 2") else 3
    run(open_new(spark, COLUMNS, version=version), STEPS[name])


@pytest.mark.slow
def test_a_branch_begins_anew_once(spark: SparkSession) -> None:
    table = open_new(spark, COLUMNS)
    run(table, OWN.removesuffix(" | "))
    assert table.resolve(staging="st", restart_staging=True).notes == ("st begins again at main.",)
    before = table._load().metadata
    idle = table.resolve(staging="st", restart_staging=True)
    assert (idle.snapshot_id, idle.notes, table._load().metadata) == (None, (), before)
    run(table, "append 9 | resolve restart | is 0 1 2 3 4:1 5:1 9")
    assert table._load().metadata.head("st") != before.head("st")


@pytest.mark.more
def test_bad_arguments(spark: SparkSession) -> None:
    table = open_new(spark, COLUMNS)
    run(table, STAGED.removesuffix(" | "))
    calls: list[tuple[dict[str, Any], str]] = [
        ({"staging": "nowhere"}, "no branch"),
        ({"staging": "main"}, "staged for itself"),
        ({"target": "nowhere"}, "no branch"),
        ({"keys": "nothing", "staging": "st"}, "nothing"),
        ({"index": "hash"}, "index is 'hash'"),
        ({"verify": "all"}, "verify is 'all'"),
        ({"unique_keys": True}, "key columns"),
        ({"max_snapshots": 0}, "1 or more"),
        ({"restart_staging": True}, "needs the staging branch"),
    ]
    for arguments, match in calls:
        with pytest.raises(InvalidArgumentError, match=match):
            table.resolve(**arguments)
