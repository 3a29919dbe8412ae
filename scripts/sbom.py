"""The bill of materials of the wheel, in CycloneDX's form: hatchling runs this when it builds one.

It names what delvec needs to run: its requirements and what these need, in the versions of
requirements.lock, which the tests run with, and the jars that a session downloads, by checksum. The
wheel holds none of these; pip may install other versions that satisfy the requirements.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RUNTIMES = "src/delvec/spark/session/iceberg_runtime.py"
LOCKED = re.compile(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64} #.* base( |$)")


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the file to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write it before the wheel is built."""
        self._folder = TemporaryDirectory()
        metadata = self.metadata
        document = materials(Path(self.root), metadata.version, metadata.core.dependencies)
        file = Path(self._folder.name, "delvec.cdx.json")
        file.write_text(json.dumps(document, indent=1) + "\n")
        build_data.setdefault("sbom_files", []).append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove it."""
        self._folder.cleanup()


def materials(root: Path, version: str, requirements: list[str]) -> dict[str, Any]:
    """Return the document; it is the same whenever it is made."""
    asked = {re.split(r"[^\w.-]", each, maxsplit=1)[0]: each for each in requirements}
    lock = (root / "requirements.lock").read_text().splitlines()
    packages = [found.group(1, 2) for line in lock if (found := LOCKED.match(line))]
    own = f"pkg:pypi/delvec@{version}"
    components = [_package(name, at, asked.get(name)) for name, at in packages]
    components += _jars((root / RUNTIMES).read_text())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "delvec",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
    }


def _package(name: str, version: str, requirement: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    found = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    properties = [{"name": "delvec:requirement", "value": requirement}] if requirement else []
    return {**found, "scope": "required", "properties": properties}


def _jars(source: str) -> list[dict[str, Any]]:
    tables = {
        node.target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in ("_VERSIONS", "_CHECKSUMS")
        and node.value is not None
    }
    group, found = "org.apache.iceberg", []
    for spark, version in tables["_VERSIONS"].items():
        name = f"iceberg-spark-runtime-{spark}_2.13"
        purl = f"pkg:maven/{group}/{name}@{version}"
        jar = {"type": "library", "bom-ref": purl, "group": group, "name": name, "purl": purl}
        hashes = [{"alg": "SHA-256", "content": tables["_CHECKSUMS"][spark]}]
        found.append({**jar, "version": version, "scope": "optional", "hashes": hashes})
    return found
