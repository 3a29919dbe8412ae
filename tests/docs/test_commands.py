"""Commands that the pages show exist, with their options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import pytest

from delvec.cli import main
from tests.docs.pages import PAGES

# In code, inline or as a line: `delvec convert SOURCE TARGET --dry-run`.
SHOWN: Final = re.compile(r"(?:^\$? ?|`)delvec ([a-z-]+)([^`\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_a_page_shows(page: Path) -> None:
    context = click.Context(main)
    for name, rest in SHOWN.findall(page.read_text()):
        command = main.get_command(context, name)
        params = [] if command is None else command.params
        known = {text for each in params for text in (*each.opts, *each.secondary_opts)}
        shown = set(re.findall(r"(?<=\s)--[a-z-]+", rest))
        assert shown <= known | {"--help"}, f"delvec {name}{rest}"
