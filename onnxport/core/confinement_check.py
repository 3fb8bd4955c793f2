"""Check whether a confined process is confined on this system, by trying to leave it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from onnxport.core.child_process import Child
from onnxport.core.scratch import ScratchFolder


def find_gaps() -> list[str]:
    """Start a confined process and return what it can do all the same, in words."""
    with ScratchFolder() as folder, Child(f"{__name__}:Attempts", purpose="the check", writes=()) as child:
        found: list[str] = child.call("attempt", Path(folder, "written"))
    return found


class Attempts:
    """The child's side."""

    def attempt(self, path: Path) -> list[str]:
        """Write the file and open a socket; return what went through."""
        found = []
        with contextlib.suppress(OSError), path.open("wb"):
            found.append("writes outside its folders")
            os.unlink(path)
        with contextlib.suppress(OSError), socket.socket():
            found.append("uses the network")
        return found
