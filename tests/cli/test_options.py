"""All commands call the same thing by the same name, and shells complete it."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from delvec.cli import main
from delvec.cli.values import age_or_time
from tests.cli.runner import commands, run
from tests.delta.builder import TableBuilder

SPARK = {"--conf", "--master", "--package"}
OPTIONS = {
    name: {
        option: given
        for given in command.params
        if isinstance(given, click.Option)
        for option in given.opts
    }
    for name, command in commands()
}


def test_whatever_changes_a_table_has_a_dry_run_and_all_print_json() -> None:
    without = {name for name, found in OPTIONS.items() if "--dry-run" not in found}
    shows = {"changes", "detail", "files", "history", "inspect", "refs", "schema", "traces"}
    assert without == {"completion", "demo", "migrate", *shows}
    assert all("--json" in found for found in OPTIONS.values())


@pytest.mark.parametrize("name", OPTIONS)
def test_what_starts_spark_takes_all_options_of_a_session(name: str) -> None:
    found = OPTIONS[name].keys()
    assert found & SPARK in (set(), SPARK)
    assert ("--catalog" in found) == ("--warehouse" in found)
    assert "--catalog" not in found or "--conf" in found


def test_an_option_has_one_form_wherever_it_is() -> None:
    """Same type and same placeholder; help texts differ where an option has its own defaults."""
    own = {
        "--source": "which rows, or which keys",
        "--history": "of the source, or how many commits to look at",
        "--set": "values of columns, or properties",
        "--partition-by": "of a new table, or of folders with their types",
    }
    seen: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name, found in OPTIONS.items():
        for option, given in found.items() if name != "demo" else ():
            kind = type(given.type).__name__
            form = (given.metavar, kind, given.multiple, given.is_flag)
            first, known = seen.setdefault(option, (name, form))
            assert option in own or known == form, f"{option} of {first} and of {name}"


def test_times_without_a_zone_are_utc_wherever_they_are() -> None:
    found = [given["--timestamp"] for given in OPTIONS.values() if "--timestamp" in given]
    assert len(found) > 5
    context = click.Context(main)
    for option in found:
        for text, expected in (
            ("2026-01-31 10:00", "2026-01-31T10:00:00+00:00"),
            ("2026-01-31T10:00+01:00", "2026-01-31T10:00+01:00"),
            ("now", "now"),
        ):
            assert option.type.convert(text, option, context) == expected
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    assert age_or_time("2026-01-31 12:00") == noon
    assert age_or_time("0d") == timedelta(0)


def test_a_fence_is_for_all_commands_that_open_a_table(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t")
    table.create()
    add = table.write_file("../outside/a.parquet", {"id": range(5)})
    table.commit({"add": add | {"path": f"{tmp_path}/outside/a.parquet"}})

    def checked(*fence: str) -> str:
        return CliRunner().invoke(main, [*fence, "check", str(table.root)]).output

    assert "nothing is wrong" in checked()
    assert "nothing is wrong" in checked("--allow-path", "/x", "--allow-path", str(tmp_path))
    assert "leads out of its folder" in " ".join(checked("--allow-path", "/x").split())


def test_hints_name_options_of_the_command() -> None:
    for line, told in (
        ("history s3:///orders", "credentials go into --storage-option"),
        ("history /orders -o s3://other=x", "write --storage-option s3://other/aws_reg"),
        ("--allow-path x history /orders", "write spark.delvec.allowedPaths and --allow-"),
    ):
        output = CliRunner().invoke(main, line.split(), env={"COLUMNS": "300"}).output
        assert told in output
        assert "storage_options" not in output


def completed(*words: str) -> list[str]:
    """What click answers to bash: a line `type,value` for each completion."""
    bash = BashComplete(main, {}, "delvec", "_DELVEC_COMPLETE")
    return [bash.format_completion(each) for each in bash.get_completions([*words[:-1]], words[-1])]


def test_commands_options_choices_and_folders_are_completed() -> None:
    assert "plain,--storage-option" in completed("files", "--s")
    assert "plain,--option" not in completed("files", "--o")
    for words, found in (
        (("hi",), "plain,history"),
        (("convert", "a", "b", "--verify", "c"), "plain,counts"),
        (("branch", "cr"), "plain,create"),
        (("branch", "drop", "t", "--dr"), "plain,--dry-run"),
        (("files", "/la"), "dir,/la"),
        (("append", "t", "--source", "/la"), "file,/la"),
    ):
        assert completed(*words) == [found]


def test_completing_a_command_imports_none() -> None:
    code = """
import os, sys
os.environ |= {"_DELVEC_COMPLETE": "bash_complete", "COMP_WORDS": "delvec h", "COMP_CWORD": "1"}
from delvec.cli import main
try:
    main(prog_name="delvec")
except SystemExit:
    pass
assert not {"pyarrow", "numpy", "rich", "pyspark"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_bash_completes_commands_by_the_script(tmp_path: Path) -> None:
    script = f"""
        PATH={Path(sys.executable).parent}:$PATH; cd {tmp_path}; eval "$(delvec completion bash)"
        COMP_WORDS=(delvec hist); COMP_CWORD=1; _delvec_completion delvec 2>/dev/null
        echo "${{COMPREPLY[@]}}"
        complete -p delvec
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    shown = ["history", "complete -o nosort -F _delvec_completion delvec"]
    assert done.stdout.splitlines() == shown
    for shell in ("zsh", "fish"):
        assert f"_DELVEC_COMPLETE={shell}_complete" in run("completion", shell, code=0).output
