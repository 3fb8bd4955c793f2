"""Benches on other machines: a phone behind adb, a board or a Mac behind ssh.

`connection.py` is what a kind of device has to do, `tools/` a module per benchmark tool of a runtime, whose output it
reads. `measurement.py` brings them together: the same rows as a bench of this machine.
"""

from __future__ import annotations

from onnxport.bench.devices.adb import Adb
from onnxport.bench.devices.connection import Device
from onnxport.bench.devices.ssh import Ssh
from onnxport.core.errors import UsageError

# Scheme of `--device SCHEME:NAME` to the kind of device.
KINDS: dict[str, type[Device]] = {"adb": Adb, "ssh": Ssh}


def open_device(given: str) -> Device:
    """Connect to the device of `--device`.

    Raises:
        UsageError: it has no known scheme, or no name.
        MissingDependencyError: its program is not installed, or it cannot be reached.
    """
    scheme, _, name = given.partition(":")
    if scheme not in KINDS or not name or name.startswith("-") or not name.isprintable():
        raise UsageError(f"--device: {given!r} is not allowed", fix="give adb:SERIAL or ssh:HOST")
    return KINDS[scheme](name)
