"""A copy of a process has its modules, and nothing else that could harm it or its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onnxport
from onnxport.core import process_copies
from onnxport.core.child_process import Child, ChildDied, borrow, give_back, reuse_children
from onnxport.core.scratch import ScratchFolder

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
CONVERT = (sys.executable, "-m", "onnxport", "convert", str(DIGITS), "--to", "tflite", "-o", "a.tflite")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
TARGET = f"{__name__}:Served"
MARKED: list[str] = []  # of this process; an interpreter of its own finds it empty

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes copies")


class Served:
    """Tells what its process has."""

    def marked(self) -> list[str]:
        return MARKED

    def files(self) -> list[str]:
        """Return what the open descriptors lead to, but for the standard streams."""
        found = []
        for number in os.listdir("/proc/self/fd"):
            try:
                found += [os.readlink(f"/proc/self/fd/{number}")] if int(number) > 2 else []
            except OSError:  # the list's own
                continue
        return found

    def temporary(self) -> str:
        return tempfile.gettempdir()

    def disposition(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def blocked(self) -> list[int]:
        return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    def path(self) -> list[str]:
        return sys.path

    def multiply(self) -> float:
        return product()

    def stream(self) -> str:
        return os.readlink("/proc/self/fd/0")

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def leave_idle(self, place: Path) -> tuple[int, str]:
        with reuse_children():
            return _leave_idle(place)


def product() -> float:
    """Large enough for OpenBLAS's threads."""
    ones = np.ones((600, 600))
    return float((ones @ ones).sum())


def child(**options: object) -> Child:
    return Child(TARGET, purpose="the test's child", shares=("numpy",), **options)  # type: ignore[arg-type]


@pytest.fixture
def copied(kind_of_child: str) -> Iterator[None]:
    MARKED.append("by the parent")
    yield
    MARKED.clear()


# Of the two kinds of conftest.py the second.
as_copies = pytest.mark.parametrize("kind_of_child", ["copy"], indirect=True)


@as_copies
@pytest.mark.usefixtures("copied")
def test_a_copy_has_what_its_parent_loaded() -> None:
    with child() as running:
        assert running.call("marked") == ["by the parent"]
        assert running.call("stream") == os.devnull


def test_a_process_that_is_not_ours_starts_an_interpreter() -> None:
    MARKED.append("by the parent")
    with child() as running:
        assert running.call("marked") == []
    MARKED.clear()


def test_a_process_with_a_thread_that_is_not_python_s_is_not_copied() -> None:
    """QEMU's user mode emulation has one, and fails in a copy."""
    code = (
        "import ctypes\n"
        "from onnxport.core import process_copies\n"
        "process_copies.allow(threads=1)\n"
        "alone = process_copies.load((), 2**30)\n"
        "library = ctypes.CDLL(None)\n"
        "library.pthread_create(ctypes.byref(ctypes.c_ulong()), None, library.pause, None)\n"
        "process_copies.allow(threads=1)\n"
        "print(alone, process_copies.load((), 2**30))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert told.stdout == "True False\n"


def test_a_process_with_more_mapped_than_a_copy_may_have_is_not_copied() -> None:
    """The copy's first thread would find no memory, and the process wait for it."""
    code = (
        "import mmap\n"
        "from onnxport.core import process_copies\n"
        "process_copies.allow(threads=1)\n"
        "few = process_copies.load((), 2**31)\n"
        "kept = mmap.mmap(-1, 2**31, flags=mmap.MAP_PRIVATE)\n"
        "print(few, process_copies.load((), 2**31))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert told.stdout == "True False\n"


@as_copies
@pytest.mark.usefixtures("copied")
def test_beside_another_thread_an_interpreter_starts() -> None:
    """It may hold a lock, which would stay locked in the copy."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    with child() as running:
        assert running.call("marked") == []
    end.set()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # it ends a little later than for Python
        time.sleep(0.001)
    with child() as running:
        assert running.call("marked") == ["by the parent"]


@as_copies
@pytest.mark.usefixtures("copied")
def test_products_of_openblas_work_before_and_behind_a_copy() -> None:
    assert product() == 600**3
    with child() as running:
        assert running.call("multiply") == 600**3
        assert product() == 600**3


@as_copies
@pytest.mark.usefixtures("copied")
def test_a_copy_keeps_no_file_of_its_parent(tmp_path: Path) -> None:
    """The lock of a scratch folder and the pipes of other children would outlive the parent in it."""
    with (tmp_path / "held").open("w"), child() as other, child() as running:
        files = running.call("files")
        assert not [name for name in files if name.startswith("/") and not name.startswith("/proc/")], files
        assert sum(name.startswith("pipe:") for name in files) == 2, files
        assert other.call("marked")


@as_copies
@pytest.mark.usefixtures("copied")
def test_a_copy_takes_signals_and_temporary_files_as_any_process(tmp_path: Path) -> None:
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    assert tempfile.gettempdir() != str(tmp_path)
    try:
        with child(writes=(tmp_path,)) as running:
            assert running.call("disposition")
            assert running.call("blocked") == []
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
            assert running.call("temporary") == running._temporary.name  # type: ignore[union-attr]
    finally:
        signal.signal(signal.SIGTERM, former)


@as_copies
@pytest.mark.usefixtures("copied")
def test_a_copy_leaves_the_idle_children_of_its_parent_alone(tmp_path: Path) -> None:
    """It neither uses nor ends them, nor removes their folders."""
    with reuse_children():
        process, folder = _leave_idle(tmp_path)
        with child() as running:
            assert running.call("leave_idle", tmp_path)[0] != process, "it used its parent's"
        assert Path(folder).is_dir()
        assert _leave_idle(tmp_path) == (process, folder)


def _leave_idle(place: Path) -> tuple[int, str]:
    """Return the number and the folder of a child that nobody uses afterwards."""
    idle = borrow(TARGET, purpose="idle", writes=(place,), shares=("numpy",))
    idle.call("marked")
    assert idle._temporary is not None
    found = idle._process.pid, idle._temporary.name
    give_back(idle)
    return found


@as_copies
@pytest.mark.usefixtures("copied")
def test_the_folders_of_the_parent_outlive_the_copy() -> None:
    folder = ScratchFolder()
    with child() as running:
        running.call("marked")
        running.ask("kill")
        with pytest.raises(ChildDied, match="SIGKILL"):
            running.answer()
    with child() as running:
        running.call("marked")
    assert Path(folder.name).is_dir()
    folder.cleanup()


@as_copies
@pytest.mark.usefixtures("kind_of_child")
def test_a_process_that_holds_a_model_starts_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that a copy shares counts as its own."""
    monkeypatch.setattr(process_copies, "_MOST", process_copies._held() + 20 * 2**20)
    MARKED.append("by the parent")
    with child() as running:
        assert running.call("marked") == ["by the parent"]
    with onnxport.limits(child_memory="1M"), child() as running:
        with pytest.raises(ChildDied):
            running.call("marked")
        assert not isinstance(running._process, process_copies.Copy), "its limit is less than a copy holds"
    model = np.ones(40 * 2**17)
    with child() as running:
        assert running.call("marked") == []
    del model
    MARKED.clear()


@as_copies
@pytest.mark.usefixtures("copied")
def test_an_ended_copy_leaves_no_zombie() -> None:
    with child() as running:
        process = running._process.pid
        running.call("marked")
    assert not Path(f"/proc/{process}").exists()


def test_what_the_parent_has_not_printed_yet_is_printed_once() -> None:
    program = (
        "from onnxport.core import process_copies\n"
        "from onnxport.core.child_process import Child\n"
        "process_copies.allow(threads=1)\n"
        "print('once')\n"
        f"with Child('{TARGET}', purpose='a child', shares=('string',)) as child:\n"
        "    child.call('marked')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "once\n"


def test_the_command_copies_itself_and_ends_its_copies_when_it_is_killed(tmp_path: Path) -> None:
    """A copy has the command line of its parent."""
    with subprocess.Popen(CONVERT, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as running:
        copies: list[int] = []
        end = time.monotonic() + 60
        while not copies and running.poll() is None and time.monotonic() < end:
            # Before its exec, any child has it.
            early = {each for each in _children(running.pid) if _command(each) == _command(running.pid)}
            time.sleep(0.05)
            copies = [each for each in early if _command(each) == _command(running.pid)]
        assert copies
        running.kill()
    while any(_runs(each) for each in copies) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_runs(each) for each in copies)


def test_a_copy_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """As any child; `python -m onnxport` itself does, before the copy."""
    (tmp_path / "litert_converter.py").write_text("raise SystemExit('the folder of the user')")
    done = subprocess.run(
        CONVERT, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def _children(process: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{process}/task")
        return [
            int(each)
            for task in tasks
            for each in Path(f"/proc/{process}/task/{task}/children").read_text().split()
        ]
    except OSError:
        return []


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
