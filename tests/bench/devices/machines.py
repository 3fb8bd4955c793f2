"""Devices for tests: an adb that runs its commands here, a local sshd, and tools that print what real ones printed."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RECORDINGS = Path(__file__).parent / "recordings"
SSHD = shutil.which("sshd") or next(filter(os.path.exists, ["/usr/sbin/sshd"]), None)
SERIAL = "31071FDH2008FK"

_ADB = """#!/bin/sh
# adb of one phone, whose only folder for programs is ROOT.
[ "$1" = -s ] || exit 1
[ "$2" = SERIAL ] || { echo "error: device '$2' not found" >&2; exit 1; }
case "$3" in
shell) shift 3; exec sh -c "$(printf '%s' "$*" | sed 's#/data/local/tmp#ROOT#g')" ;;
push) cp "$4" "$5" && echo "$4: 1 file pushed, 0 skipped." ;;
*) exit 1 ;;
esac
"""
_GETPROP = """#!/bin/sh
case "$1" in
ro.product.manufacturer) echo Google ;;
ro.product.model) echo "Pixel 8" ;;
ro.soc.manufacturer) echo Google ;;
ro.soc.model) echo "Tensor G3" ;;
ro.build.version.release) echo 16 ;;
esac
"""
# Checks that what its arguments name is there, as the real one would, and keeps the arguments.
_TOOL = """#!/bin/sh
echo "$@" >> LOG
for word in "$@"; do
  case "$word" in
  --graph=*) test -s "${word#--graph=}" || { echo "Failed to load model"; exit 1; } ;;
  --input_layer_value_files=*)
    for pair in $(echo "${word#*=}" | tr , ' '); do test -f "${pair#*:}" || { echo "no ${pair#*:}"; exit 1; }; done ;;
  *.onnx) test -s "$word" || { echo "no $word"; exit 1; }
    test -s "$(dirname "$word")/test_data_set_0/input_0.pb" || { echo "there is no test data for model"; exit 1; } ;;
  esac
done
BEFORE
cat <<'END'
OUTPUT
END
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def tool(path: Path, recording: str, before: str = "") -> Path:
    """Write a benchmark tool that prints a recording; its arguments stand in `<path>.log`."""
    output = (RECORDINGS / f"{recording}.txt").read_text(encoding="utf-8")
    text = _TOOL.replace("LOG", f"'{path}.log'").replace("BEFORE", before).replace("OUTPUT", output)
    return script(path, text)


def adb(folder: Path) -> tuple[str, Path]:
    """Return a PATH with an adb of one phone, and the phone's folder."""
    root = folder / "phone"
    root.mkdir()
    script(folder / "bin" / "adb", _ADB.replace("ROOT", str(root)).replace("SERIAL", SERIAL))
    script(folder / "bin" / "getprop", _GETPROP)
    return f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", root


@contextmanager
def sshd(folder: Path) -> Iterator[str]:
    """Run an sshd on the loopback address; yield a PATH whose ssh knows it as the host `board`."""
    assert SSHD is not None
    folder.mkdir(parents=True)
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\nHost *\n  UserKnownHostsFile {folder}/known\n"
    )
    real = shutil.which("ssh")
    script(folder / "bin" / "ssh", f'#!/bin/sh\nexec {real} -F {folder}/ssh_config "$@"\n')
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
        try:
            _wait(port)
            yield f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        finally:
            server.terminate()
            server.wait()


def _wait(port: int) -> None:
    for _ in range(200):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("sshd did not start")
