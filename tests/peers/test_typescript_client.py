"""The TypeScript client: generated from a network's document, compiled, and run in Node against it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.network import Network
from tests.programs import require, unavailable

SERVERS = 1
LOCKED = True
CLIENT = Path(__file__).parents[2] / "clients/typescript"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with its packages; those that `make` has installed are used where they are."""
    require("node", "npm")
    made = tmp_path_factory.mktemp("typescript") / "client"
    ignored = shutil.ignore_patterns("node_modules", "dist", "openapi.json", "schema.ts")
    shutil.copytree(CLIENT, made, ignore=ignored)
    if (CLIENT / "node_modules/.package-lock.json").exists():
        (made / "node_modules").symlink_to(CLIENT / "node_modules")
        return made
    installed = subprocess.run(
        ["npm", "ci", "--silent", "--no-audit", "--no-fund"],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if installed.returncode:
        unavailable(f"npm could not install the client's packages: {installed.stderr[-200:]}")
    return made


def run(folder: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_goes_through_a_conversation_in_node(network: Network, folder: Path) -> None:
    (folder / "openapi.json").write_text(network.http.get("/openapi.json").text)
    run(folder, "npm", "run", "--silent", "build")
    made = network.http.post("/v1/keys", json={"name": "ts", "scopes": ["publish", "subscribe", "admin"]})
    printed = run(folder, "node", "test/conversation.mjs", EDN_URL=network.url, EDN_KEY=made.json()["key"])
    assert json.loads(printed) == {
        "accepted": 4,
        "prices": [31, 32, 33, 34],
        "listed": [True],
        "refused": {"status": 422, "pointer": "/filter"},
        "unknown": 401,
        "stream": "ended",
        "gone": 404,
    }


@pytest.mark.slow
def test_a_call_that_the_document_does_not_have_is_no_typescript(network: Network, folder: Path) -> None:
    (folder / "openapi.json").write_text(network.http.get("/openapi.json").text)
    run(folder, "npm", "run", "--silent", "generate")
    wrong = folder / "src/wrong.ts"
    wrong.write_text(
        'import { Edn } from "./index.js";\n'
        'const edn = new Edn({ url: "http://x" });\n'
        'await edn.api.GET("/v1/nothing");\n'
        "await edn.subscribe({ filter: {} });\n"
    )
    try:
        done = subprocess.run(
            ["npx", "tsc", "--noEmit"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        wrong.unlink()
    assert done.returncode != 0
    assert "src/wrong.ts(3" in done.stdout
    assert "src/wrong.ts(4" in done.stdout
