"""Check that every link of a built site leads to a page, and every anchor to a heading."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["broken_links"]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) in {
                ("a", "href"),
                ("img", "src"),
                ("script", "src"),
                ("link", "href"),
            }:
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for each link inside the site that leads nowhere."""
    pages = {path: _parsed(path) for path in sorted(site.rglob("*.html"))}
    found: list[str] = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are from the root of the site, wherever it stands
            continue
        found += [
            f"{path.relative_to(site)}: {link} ({why})"
            for link in page.links
            if (why := _broken(site, path, link, pages))
        ]
    return found


def _parsed(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def _broken(site: Path, path: Path, link: str, pages: dict[Path, _Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site.resolve()) and target != path:
        return "outside of the site"
    if not target.exists():
        return "no such page"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""
