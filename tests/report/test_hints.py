"""Words of advice as a shell takes them."""

from __future__ import annotations

import subprocess

import pytest

from delvec.report.hints import call, shell_word


@pytest.mark.parametrize("word", ["a b", "it's", "a\n1", "\x1b1", "\\'\t", "é\x85f", "$x`"])
def test_a_shell_reads_a_word_as_it_was(word: str) -> None:
    line = f"printf %s {shell_word(word)}"
    found = subprocess.run(["bash", "-c", line], check=True, capture_output=True)
    assert found.stdout.decode() == word


def test_a_path_is_no_option() -> None:
    assert shell_word("-x", is_path=True) == "./-x"
    assert call("vacuum", table="-x").command == "`delvec vacuum ./-x`"
    assert shell_word("-1") == "-1"
