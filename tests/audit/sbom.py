"""Writes the bill of materials with cyclonedx-py, without what is not locked and without local paths."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name


def environment(*, validate: bool = True) -> dict[str, Any]:
    """The CycloneDX document of everything that is installed."""
    with tempfile.TemporaryDirectory(prefix="edn-audit-") as folder:
        target = Path(folder) / "sbom.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-format", "JSON"]
        command += ["--output-file", str(target), "--output-reproducible"]
        command += ["--validate" if validate else "--no-validate", sys.executable]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        document: dict[str, Any] = json.loads(target.read_text())
        return document


def restrict(document: dict[str, Any], names: Collection[str], runtime: Collection[str]) -> dict[str, Any]:
    """The document of these packages, edn as what it is about; those that only developers need are
    `excluded` from the product, in the words of CycloneDX."""

    def name_of(component: dict[str, Any]) -> str:
        return str(canonicalize_name(component["name"]))

    about = next(one for one in document["components"] if name_of(one) == "edn")
    kept = [one for one in document["components"] if name_of(one) in names and one is not about]
    refs = {one["bom-ref"] for one in (about, *kept)}
    components = [
        {**one, "scope": "required" if name_of(one) in runtime else "excluded"}
        for one in sorted(kept, key=name_of)
    ]
    dependencies = [
        {**one, "dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in refs]}
        for one in document["dependencies"]
        if one["ref"] in refs
    ]
    own = {
        key: value for key, value in about.items() if key != "externalReferences"
    }  # a path of this machine
    properties = [
        one for one in document["metadata"].get("properties", ()) if "path" not in one.get("name", "").lower()
    ]
    metadata = {**document["metadata"], "component": {**own, "type": "application"}, "properties": properties}
    return {**document, "metadata": metadata, "components": components, "dependencies": dependencies}
