"""`python -m website`: build the site into build/site, and check its links."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from website.links import broken_links
from website.pages import write_machine_readable, write_pages

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Collect the pages, build the site, and exit with an error if a link leads nowhere."""
    zensical = Path(sys.executable).with_name("zensical")
    if not zensical.exists():
        sys.exit("the site is built by Zensical, which needs Python 3.11 or newer: make docs")
    build = ROOT / "build"
    pages, site = build / "pages", build / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    write_pages(ROOT, pages)
    shutil.copy(ROOT / "website" / "mkdocs.yml", build)
    command = [str(zensical), "build", "--clean", "--strict"]
    subprocess.run(command, cwd=build, check=True)  # noqa: S603
    write_machine_readable(ROOT, pages, site)
    if broken := broken_links(site):
        sys.exit("\n".join(["links that lead nowhere:", *broken]))
    print(
        f"{site / 'index.html'}: {len(list(site.rglob('*.html')))} pages, all links lead somewhere"
    )


if __name__ == "__main__":
    main()
