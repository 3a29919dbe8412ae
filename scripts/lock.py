"""Write requirements.lock: what `make install` takes, by version and SHA-256.

    python scripts/lock.py

Run it with the Python of .venv (3.11, on Linux on x86-64), where pip resolves what pyproject.toml
and constraints.txt allow, and tells what it would download; nothing is installed. Each line ends in
the sets that have the package: `build` is installed first, since a package that is published as
source is built with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETS = {"base": "", "test": "[test]", "dev": "[dev]", "docs": "[docs]"}
# What builds delvec, editable, and PySpark, of which there is no wheel; uv installs the rest.
BUILD = ["hatchling", "hatch-fancy-pypi-readme", "editables", "setuptools", "wheel", "uv"]
HEAD = """\
# Written by scripts/lock.py, for Python 3.11 on Linux (x86-64, glibc 2.28 or newer): `make lock`.
# Elsewhere constraints.txt applies, without hashes. After the # are the sets that have a package.
"""


def main() -> None:
    """Resolve each set, and write all of them as one file."""
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        sys.exit("the lock is that of Python 3.11 on Linux: run it there")
    found = {"build": resolved(*BUILD)}
    found |= {name: resolved(f"{ROOT}{extras}") for name, extras in SETS.items()}
    lines = {line for lines in found.values() for line in lines}
    kept = [
        f"{line} # {' '.join(name for name, lines in found.items() if line in lines)}"
        for line in sorted(lines)
    ]
    (ROOT / "requirements.lock").write_text(HEAD + "\n".join(kept) + "\n")


def resolved(*requirements: str) -> set[str]:
    """Return the packages that pip would install, each as a line of a requirements file."""
    options = ["--quiet", "--dry-run", "--ignore-installed", "--report", "-", "-c"]
    command = [sys.executable, "-m", "pip", "install", *options, str(ROOT / "constraints.txt")]
    done = subprocess.run(  # noqa: S603 - our own words
        [*command, *requirements], stdout=subprocess.PIPE, check=True, cwd=ROOT
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return {
        f"{each['metadata']['name'].lower().replace('_', '-')}=={each['metadata']['version']}"
        f" --hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in report["install"]
        if "archive_info" in each["download_info"]  # not delvec itself
    }


if __name__ == "__main__":
    main()
