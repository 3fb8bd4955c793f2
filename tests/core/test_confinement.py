"""A confined child has limits, writes in its folders only, and reaches no network; the test says where it cannot."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import onnxport
from onnxport.core.child_process import Child, ChildDied
from onnxport.core.confinement_check import find_gaps
from onnxport.core.errors import MachineError

PURPOSE = "the test"
SHARED = ("string",)  # a child that shares a module may be a copy of its parent
pytestmark = pytest.mark.usefixtures("kind_of_child")


class Served:
    """What a hostile file would do once it has taken over a native library."""

    def write(self, path: str) -> str:
        Path(path).write_bytes(b"x")
        return path

    def write_temporary(self) -> str:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(b"x")
        return file.name

    def start(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def error_of(self, method: str, *arguments: str) -> int:
        """Return the number of the system's error, 0 for none."""
        try:
            getattr(self, method)(*arguments)
        except OSError as error:
            return error.errno or -1
        return 0

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def truncate(self, path: str) -> None:
        os.truncate(path, 0)

    def connect(self, port: str) -> None:
        with socket.create_connection(("127.0.0.1", int(port)), timeout=5):
            pass

    def send(self, port: str) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"secret", ("127.0.0.1", int(port)))

    def stop(self, process: str) -> None:
        os.kill(int(process), signal.SIGTERM)

    def allocate(self, size: int) -> int:
        return len(bytearray(size))

    def limits(self) -> list[tuple[int, int]]:
        return [resource.getrlimit(each) for each in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]

    def spin(self) -> None:
        signal.alarm(60)  # should nothing else end it
        while True:
            pass

    def processor_limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_CPU)[0]


TARGET = f"{__name__}:Served"


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Child]:
    if gaps := find_gaps():
        pytest.skip(f"this system cannot confine: it {' and '.join(gaps)}")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    with Child(TARGET, purpose=PURPOSE, shares=SHARED, writes=(allowed,)) as child:
        yield child


def test_it_writes_in_its_folders_alone(confined: Child, tmp_path: Path) -> None:
    inside = str(tmp_path / "allowed" / "a")
    assert confined.call("write", inside) == inside
    temporary = Path(confined.call("write_temporary"))
    assert temporary.read_bytes() == b"x"
    former = tmp_path / "former"
    former.write_bytes(b"former")
    for method, *arguments in (
        ("write", str(tmp_path / "new")),
        ("write", str(former)),
        ("truncate", str(former)),
        ("remove", str(former)),
        ("rename", inside, str(tmp_path / "moved")),
        ("rename", str(former), inside),
        ("write", f"/dev/shm/onnxport-test-{os.getpid()}"),
    ):
        refused = confined.call("error_of", method, *arguments)
        assert refused in (errno.EACCES, errno.EXDEV, errno.EPERM), (method, arguments, refused)
    assert former.read_bytes() == b"former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allowed", "former"]
    confined.close()
    assert not temporary.exists(), "its temporary folder goes with it"


def test_what_it_starts_is_confined_too(confined: Child, tmp_path: Path) -> None:
    code, said = confined.call("start", "/bin/sh", "-c", f"echo x > {tmp_path}/by-the-shell")
    assert code != 0
    assert "ermission denied" in said
    assert not (tmp_path / "by-the-shell").exists()


def test_it_reaches_no_network_and_no_other_process(confined: Child) -> None:
    _check_isolation(confined)


def test_an_offline_child_writes_where_it_likes_and_reaches_no_network(tmp_path: Path) -> None:
    """A compiler: its output lies in the user's folder."""
    if gaps := find_gaps():
        pytest.skip(f"this system cannot confine: it {' and '.join(gaps)}")
    with Child(TARGET, purpose=PURPOSE, shares=SHARED, offline=True) as child:
        assert child.call("write", str(tmp_path / "a")) == str(tmp_path / "a")
        _check_isolation(child)


@pytest.mark.parametrize("compiler", ["tflite", "coreml"])
def test_compilers_are_offline(compiler: str) -> None:
    pytest.importorskip({"tflite": "litert_converter", "coreml": "coremltools"}[compiler])
    if gaps := find_gaps():
        pytest.skip(f"this system cannot confine: it {' and '.join(gaps)}")
    module = importlib.import_module(f"onnxport.converters.{compiler}.compiler")
    with getattr(module, f"{compiler.capitalize()}Converter")() as converter:
        assert converter.native_ops(), "it has begun"
        assert _filters(str(converter._child._process.pid)) > _filters("self")


def _filters(process: str) -> int:
    """Return how many filters of system calls a process has; a container's are inherited."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("Seccomp_filters:")[2].split()[0])


def _check_isolation(confined: Child) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as waiting:
        waiting.bind(("127.0.0.1", 0))
        assert confined.call("error_of", "connect", str(server.getsockname()[1])) == errno.EACCES
        assert confined.call("error_of", "send", str(waiting.getsockname()[1])) == errno.EACCES
        with socket.create_connection(server.getsockname()):  # anyone else does
            pass
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert confined.call("error_of", "stop", str(other.pid)) == errno.EPERM
        assert other.poll() is None
        other.kill()


def test_one_that_runs_code_of_the_user_is_free(tmp_path: Path) -> None:
    with Child(TARGET, purpose=PURPOSE, shares=SHARED) as child:
        assert Path(child.call("write", str(tmp_path / "a"))).exists()


def test_memory_and_files_are_limited_by_options() -> None:
    with (
        onnxport.limits(child_memory="1G", child_file="10k"),
        Child(TARGET, purpose=PURPOSE, shares=SHARED) as child,
    ):
        with pytest.raises(MachineError, match=r"ran out of memory.*--limit child-memory"):
            child.call("allocate", 1 << 31)
        assert child.call("limits") == [(0, 0), (10_000, 10_000)]
        assert child.call("allocate", 1 << 20) == 1 << 20


def test_a_call_has_processor_time_for_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child of a killed parent ends even where native code holds Python's lock."""
    with Child(TARGET, purpose=PURPOSE, shares=SHARED, timeout=100) as child:
        most = child.call("processor_limit")
        assert 100 <= most <= 110 * (os.cpu_count() or 1)
    with Child(TARGET, purpose=PURPOSE, shares=SHARED, timeout=0.4) as child:
        monkeypatch.setattr(child, "_timeout", 0.4)
        child.ask("spin")
        child._timeout = 60
        begun = time.monotonic()
        with pytest.raises(ChildDied, match="SIGXCPU"):
            child.answer()
        assert time.monotonic() - begun < 30


def test_a_model_of_others_is_run_in_a_confined_process(tmp_path: Path) -> None:
    """By what the system says of the processes that a validation starts."""
    from onnxport.runtimes.isolation import IsolatedRuntime
    from tests.cli.sandbox import DIGITS

    if gaps := find_gaps():
        pytest.skip(f"this system cannot confine: it {' and '.join(gaps)}")
    with contextlib.closing(IsolatedRuntime(DIGITS)) as runtime:
        assert runtime.inputs
        status = Path(f"/proc/{runtime._process.child._process.pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
