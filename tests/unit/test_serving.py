"""A service that cannot start ends with a code that says so, and none that means something else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from edn.runtime.process import bind, serve

@asynccontextmanager
async def life(app):
    raise OSError("the disk is made of cheese")
    yield

serve(FastAPI(lifespan=life), [bind("127.0.0.1", 0)], {})
"""


def test_an_app_that_does_not_start_ends_its_process_with_1() -> None:
    """3, which is uvicorn's word for it, is what a server ends with that its dispatcher refuses."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "the disk is made of cheese" in ran.stderr
    assert ran.stdout == "", "it never said that it is ready"
