"""A command in a real terminal: a pseudo-terminal of a given size, keys to press, a screen to read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][AB0]|\x1b[=>]|\r")


def _control() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """`python -m edn.cli` with these arguments; what it prints is collected, control sequences left out."""

    def __init__(
        self, *arguments: str, rows: int = 24, columns: int = 100, env: dict[str, str] | None = None
    ) -> None:
        self._arguments = arguments
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._env = env or {}
        self.raw = ""

    def __enter__(self) -> Self:
        self._master, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, self._size)
        os.set_blocking(self._master, False)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "edn.cli", *self._arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**os.environ, "TERM": "xterm-256color", **self._env},
            start_new_session=True,
            preexec_fn=_control,  # so that Ctrl-C is a signal
        )
        os.close(child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        return _CONTROL.sub("", self.raw)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """Until the pattern is on the screen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._read()
            found = re.search(pattern, self.text, re.DOTALL)
            if found is not None:
                return found
            if self._process.poll() is not None and not self._read():
                break
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} did not come; the screen says:\n{self.text[-2000:]}")

    def exit_code(self, seconds: float = 20.0) -> int:
        until = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < until:
            self._read()  # or the child may wait for its output to be read
            time.sleep(0.02)
        self._read()
        return self._process.wait(1)

    def _read(self) -> bool:
        came = False
        while True:
            try:
                data = os.read(self._master, 65536)
            except (BlockingIOError, OSError):  # nothing yet; or the child has gone
                return came
            if not data:
                return came
            came = True
            self.raw += data.decode(errors="replace")
