"""In place of a runtime in a process of its own."""

from __future__ import annotations

import os
import signal
from typing import Any


class Dying:
    def open(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class Hanging:
    def open(self, *_: Any) -> None:
        signal.pause()
