"""Completion by shells: commands, options, choices and the paths of folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from click.shell_completion import BashComplete

from delvec.cli import main
from tests.cli.runner import run

BIN = Path(sys.executable).parent


def completed(*words: str) -> list[str]:
    """What click answers to bash: a line `type,value` for each completion."""
    bash = BashComplete(main, {}, "delvec", "_DELVEC_COMPLETE")
    return [bash.format_completion(each) for each in bash.get_completions([*words[:-1]], words[-1])]


def test_commands_options_choices_and_folders_are_completed() -> None:
    assert completed("hi") == ["plain,history"]
    assert "plain,--storage-option" in completed("files", "--s")
    assert "plain,--option" not in completed("files", "--o")
    assert completed("convert", "a", "b", "--verify", "c") == ["plain,counts"]
    assert completed("branch", "cr") == ["plain,create"]
    assert completed("branch", "drop", "t", "--dr") == ["plain,--dry-run"]
    assert completed("files", "/la") == ["dir,/la"]
    assert completed("append", "t", "--source", "/la") == ["file,/la"]


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


def test_each_shell_gets_its_script() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert f"_DELVEC_COMPLETE={shell}_complete" in run("completion", shell, code=0).output


def test_bash_completes_folders_by_the_script(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders.csv").write_text("")
    script = f"""
        PATH={BIN}:$PATH; cd {tmp_path}; eval "$(delvec completion bash)"
        COMP_WORDS=(delvec hist); COMP_CWORD=1; _delvec_completion delvec 2>/dev/null
        echo "${{COMPREPLY[@]}}"
        complete -p delvec
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "history",
        "complete -o nosort -F _delvec_completion delvec",
    ]
