"""Collect the pages of the site, and write the texts that are for machines."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

from website.api import api_pages
from website.commands import commands_page

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["navigation", "write_machine_readable", "write_pages"]

_SUMMARY: Final = "Row-level deletes for Delta Lake and Apache Iceberg, on Spark, from Python."
_ENTRY: Final = re.compile(r"^ *- (.+): (\S+\.md)$", re.MULTILINE)


def write_pages(root: Path, pages: Path) -> None:
    """Copy docs/, and write the pages that are generated."""
    shutil.copytree(root / "docs", pages)
    shutil.copy(root / "website" / "extra.css", pages)
    # In the repository the changelog links to docs/page.md, on the site it is beside these pages.
    changelog = (root / "CHANGELOG.md").read_text()
    (pages / "changelog.md").write_text(
        re.sub(r"\[(?:docs/)?([^\]]*)\]\(docs/", r"[\1](", changelog)
    )
    generated = {**api_pages(), "commands": commands_page()}
    (pages / "api").mkdir()
    for name, text in generated.items():
        (pages / "api" / f"{name}.md").write_text(text)


def navigation(root: Path) -> list[tuple[str, str]]:
    """Return title and file of all pages, in the order of the site."""
    return _ENTRY.findall((root / "website" / "mkdocs.yml").read_text())


def write_machine_readable(root: Path, pages: Path, site: Path) -> None:
    """Write llms.txt, a list of the pages, llms-full.txt, all of them, and each as Markdown."""
    lines = ["# delvec", "", f"> {_SUMMARY}", "", "## Pages", ""]
    whole = []
    for title, place in navigation(root):
        text = (pages / place).read_text()
        (site / place).write_text(text)
        lines.append(f"- [{title}]({place}): {_first_sentence(text)}")
        whole.append(text.strip())
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    (site / "llms-full.txt").write_text("\n\n".join(whole) + "\n")


def _first_sentence(page: str) -> str:
    """Return the first sentence of the first paragraph behind the heading."""
    paragraphs = [part for part in page.split("\n\n") if re.match(r"(?!```)[A-Za-z`*]", part)]
    text = " ".join(paragraphs[0].split()) if paragraphs else ""
    found = re.match(r"(.*?)[.:](?=\s|$)", text)
    return (f"{found[1]}." if found else text).replace("**", "")
