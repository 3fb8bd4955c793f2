"""Machines behind ssh: a host of the user's ssh configuration, or [USER@]HOST[:PORT]."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from onnxport.bench.devices.connection import Answer, Device
from onnxport.core.scratch import ScratchFolder

_WITH_PORT = re.compile(r"(?P<host>[^:]+):(?P<port>\d+)")
# No question can be answered: keys and known hosts are those that `ssh HOST` uses.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR")
_LONGEST_SOCKET = 80  # characters: systems allow about 100, and ssh appends some


class Ssh(Device):
    scheme = "ssh"
    program = "ssh"
    install = "install OpenSSH's client"
    hint = "`ssh -o BatchMode=yes HOST true` has to work: without a password, from a known host"
    place = "${TMPDIR:-/tmp}"

    def __init__(self, name: str) -> None:
        # One connection serves all commands: a handshake takes longer than most of them.
        self._control = ScratchFolder()
        path = f"{self._control.name}/s"
        fits = len(path) < _LONGEST_SOCKET
        self._shared = (
            "-o",
            "ControlMaster=auto",
            "-o",
            f"ControlPath={path}",
            "-o",
            "ControlPersist=60",
        ) * fits
        super().__init__(name)

    def close(self) -> None:
        super().close()
        if self._shared:
            self.call(["ssh", *self._shared, "-O", "exit", "--", self._host[-1]], 10)
        self._control.cleanup()

    @property
    def _host(self) -> tuple[str, ...]:
        """The words that name the host."""
        found = _WITH_PORT.fullmatch(self.name)
        return ("-p", found["port"], "--", found["host"]) if found else ("--", self.name)

    def shell(self, command: str) -> list[str]:
        return ["ssh", *_OPTIONS, *self._shared, *self._host, command]

    def send(self, file: Path, place: str, seconds: float) -> Answer:
        """See Device; through the shell, since a board may have no sftp server."""
        return self.call(self.shell(f"cat > {shlex.quote(place)}"), seconds, file)
