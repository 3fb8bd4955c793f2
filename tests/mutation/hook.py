"""Records which function ran during which test; `reach.instrument` copies it into the package as `core/_reach.py`.

Each pair of a test and a function is one appended line, so that a process that is killed loses nothing.
"""

import mmap
import os

# The file with the number of the running test: a plugin of pytest writes it, child processes inherit the name.
TEST = "ONNXPORT_REACH_TEST"
FOLDER = "ONNXPORT_REACH_FOLDER"  # for the plugin: where to put these files

_seen: set[tuple[int, int]] = set()
_name = os.environ.get(TEST)
if _name:
    with open(_name, "rb") as _file:
        _running = memoryview(mmap.mmap(_file.fileno(), 4, prot=mmap.PROT_READ)).cast("i")


def reach(function: int) -> None:
    """Record that the running test reaches this function."""
    if not _name:
        return
    pair = (_running[0], function)
    if pair not in _seen:
        _seen.add(pair)
        # Opened each time: a descriptor kept open could take the place of a closed standard stream.
        log = os.open(f"{_name}.reached", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, b"%d %d\n" % pair)
        os.close(log)
