"""Commands that are killed, or whose disk is full or clock is set, at random moments: no artefact is in parts.

One moment of each kind in CI, a hundred of each command with `make soak`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.soak.project import DIGITS, PIPELINE, ROOT, TIMEOUT, descendants, wait_until_gone

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

LINEAR = ROOT / "fixtures" / "digits" / "linear.skops"
# What each command makes; the former artefact is text that no command writes.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "convert": ("convert", "digits.onnx", "--to", "ort", "-o", "out.ort"),
    "convert-tflite": ("convert", "digits.onnx", "--to", "tflite", "-o", "out.tflite"),
    "quantize": ("quantize", "digits.onnx", "--int8-weights", "-o", "out.onnx"),
    "optimize": ("optimize", "digits.onnx", "--opset", "21", "-o", "out.onnx"),
    "export": ("export", "linear.skops", "-o", "out.onnx"),
    "run": ("run", "pipeline.yaml"),
    "cache prune": ("cache", "prune", "--size", "1kB"),
    "convert-gpu": (
        *("convert", "digits.onnx", "--to", "tflite", "--fit", "gpu"),
        *("--shape", "image=1,1,8,8", "-o", "out.tflite"),
    ),
    "init": ("init", "digits.onnx", "--force", "--ci", "none", "-o", "out.yaml"),
    "inspect plan": ("inspect", "digits.onnx", "--plan"),
    "view": ("view", "digits.onnx", "--export", "out"),
}
FORMER = b"the former artefact"
KILLS, DISKS, ERRORS, CLOCKS = 100, 30, 12, 8
_YEAR = 365 * 86400  # seconds
_WRITES_NOTHING = ("inspect plan", "cache prune")
_FEW = ("convert",)  # in CI; the others take minutes


def _trials(count: int) -> list[object]:
    """Commands with numbers of trials, of which CI makes a few."""
    return [
        pytest.param(name, each, marks=() if each < 1 and name in _FEW else pytest.mark.exhaustive)
        for name in COMMANDS
        for each in range(count)
    ]


@dataclass(frozen=True)
class Work:
    """A folder with sources, a former artefact, and a temporary folder beside it."""

    name: str
    folder: Path

    @classmethod
    def made(cls, name: str, root: Path) -> Work:
        work = cls(name, root / "work")
        (root / "tmp").mkdir(parents=True)
        if name == "cache prune":
            shutil.copytree(_ran_pipeline(), work.folder)
            return work
        work.folder.mkdir()
        shutil.copy(DIGITS, work.folder)
        shutil.copy(LINEAR, work.folder)
        if name == "init":
            _draw(work.folder / "samples")
        (work.folder / "pipeline.yaml").write_text(PIPELINE)
        if (output := work.output) is not None:
            output.write_bytes(FORMER)
        return work

    @property
    def output(self) -> Path | None:
        command = COMMANDS[self.name]
        return self.folder / command[command.index("-o") + 1] if "-o" in command else None

    def start(
        self,
        command: tuple[str, ...] = (),
        before_exec: Callable[[], None] | None = None,
        **variables: str,
    ) -> subprocess.Popen[str]:
        environment = os.environ | variables
        environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder.parent / "tmp")}
        environment.pop("ONNXPORT_CACHE", None)
        environment["XDG_CACHE_HOME"] = str(self.folder.parent / "home")
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "onnxport", *(command or COMMANDS[self.name])],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before_exec,
        )

    def end(self, process: subprocess.Popen[str]) -> int:
        with process:
            _, self_said = process.communicate(timeout=TIMEOUT)
        assert "Traceback" not in self_said, self_said
        return process.returncode

    def products(self) -> dict[str, str]:
        """Digests of artefacts, by name; the private files of a dead run show as another name."""
        found = [
            *self.folder.glob("out*"),
            *self.folder.glob("*.schema.json"),
            *(file for folder in ("build", "out") for file in (self.folder / folder).rglob("*")),
            *self.folder.glob(".onnxport-*"),
        ]
        return {
            file.relative_to(self.folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(found)
            if file.is_file()
        }

    def litter(self) -> list[str]:
        """Names of private files, and of all in the temporary folder."""
        private = self.folder / ".onnxport" / "stages" / "new"
        temporary = (self.folder.parent / "tmp").iterdir()
        found = [
            *self.folder.rglob(".onnxport-*"),
            *(private.iterdir() if private.exists() else ()),
            *temporary,
        ]
        return [each.name for each in found]


@functools.cache
def _ran_pipeline() -> Path:
    """Return a folder with a pipeline that was run; it lives as long as this process."""
    root = Path(_KEPT.enter_context(tempfile.TemporaryDirectory()))
    work = Work.made("run", root)
    assert work.end(work.start()) == 0
    return work.folder


_KEPT = contextlib.ExitStack()
atexit.register(_KEPT.close)


def _draw(folder: Path) -> None:
    """Write pictures that do not fit the model, for which `init` writes a preprocess."""
    from PIL import Image

    folder.mkdir()
    for number in range(3):
        Image.new("RGB", (20, 30), (number, 90, 200)).save(folder / f"{number}.png")


@dataclass(frozen=True)
class Undisturbed:
    """What a command leaves that nobody disturbs, and how long it takes."""

    products: Mapping[str, str]
    seconds: float


@pytest.fixture(scope="session")
def undisturbed_commands(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Undisturbed]:
    known: dict[str, Undisturbed] = {}

    def of(name: str) -> Undisturbed:
        if name not in known:
            for _ in range(2):  # the first reads libraries from the disk
                work = Work.made(name, tmp_path_factory.mktemp("undisturbed"))
                started = time.monotonic()
                assert work.end(work.start()) == 0
                known[name] = Undisturbed(work.products(), time.monotonic() - started)
        return known[name]

    return of


def _check(work: Work, expected: Undisturbed) -> None:
    """Fail unless every artefact is the former one or the new one; then the next run must be right."""
    former = hashlib.sha256(FORMER).hexdigest()
    if (folder := work.folder / "out").is_dir():  # a new one, which appears whole or not at all
        found = {name: digest for name, digest in work.products().items() if name.startswith("out/")}
        assert found == expected.products, "a part of a folder"
        shutil.rmtree(folder)
    for name, digest in work.products().items():
        if ".onnxport-" not in name:  # also beside an artefact; the next run removes it
            assert digest in (former, expected.products.get(name)), (
                f"{name} is neither the old nor the new one"
            )
    if work.output is not None:
        assert work.output.exists(), "the former artefact is lost"
    for folder in (work.folder.parent / "tmp").iterdir():
        os.utime(folder, (0, 0))  # younger ones might still be without their lock (core/scratch.py)
    assert work.end(work.start()) == 0
    assert work.products() == expected.products
    assert work.litter() == []


@pytest.mark.parametrize(("name", "trial"), _trials(KILLS))
def test_a_killed_command_leaves_the_old_or_the_new(
    name: str, trial: int, tmp_path: Path, undisturbed_commands: Callable[[str], Undisturbed]
) -> None:
    expected = undisturbed_commands(name)
    work = Work.made(name, tmp_path)
    with work.start() as process:
        time.sleep(random.Random(f"{name} {trial}").uniform(0.02, 1.1) * expected.seconds)
        children = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
    wait_until_gone(children)
    _check(work, expected)


def test_a_run_that_finds_all_in_the_cache_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    work = Work.made("cache prune", tmp_path)  # after a run
    left = tmp_path / "tmp" / "onnxport-scratch-killed"
    left.mkdir()
    (left / ".in-use").touch()
    os.utime(left, (0, 0))
    assert work.end(work.start(COMMANDS["run"])) == 0
    assert work.litter() == []


@pytest.mark.parametrize(("name", "trial"), _trials(DISKS))
def test_a_full_disk_leaves_the_old_or_the_new(
    name: str, trial: int, tmp_path: Path, undisturbed_commands: Callable[[str], Undisturbed]
) -> None:
    """No file of the command or its children may have more than some bytes: every write fails in its midst once."""
    expected = undisturbed_commands(name)
    work = Work.made(name, tmp_path)
    most = int(10 ** random.Random(f"{name} {trial}").uniform(1, 5))
    code = work.end(work.start(before_exec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))))
    assert code in (0, 6), code
    assert work.litter() == []
    _check(work, expected)


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes writes fail."""
    return _built("failing_disk.c", tmp_path_factory.mktemp("failing"))


@pytest.fixture(scope="session")
def jumping_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that sets the clock."""
    return _built("jumping_clock.c", tmp_path_factory.mktemp("jumping"))


def _built(source: str, folder: Path) -> Path:
    """Build a library to preload; skip where none can be."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("building a library to preload takes a C compiler on Linux")
    library = folder / "preloaded.so"
    file = Path(__file__).with_name(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, file, "-ldl"], check=True)
    return library


@pytest.mark.parametrize(("name", "trial"), _trials(ERRORS))
def test_a_broken_disk_leaves_the_old_or_the_new(
    name: str,
    trial: int,
    failing_disk: Path,
    tmp_path: Path,
    undisturbed_commands: Callable[[str], Undisturbed],
) -> None:
    """EIO from write number `trial` of each process on."""
    expected = undisturbed_commands(name)
    work = Work.made(name, tmp_path)
    broken = {"LD_PRELOAD": str(failing_disk), "FAIL_BELOW": str(tmp_path), "FAIL_AFTER": str(trial)}
    code = work.end(work.start(**broken))
    assert code in (0, 6), code
    if not trial:
        assert (code == 6) == (name not in _WRITES_NOTHING), "the library has no effect"
    assert work.litter() == []
    _check(work, expected)


@pytest.mark.parametrize(("name", "trial"), _trials(CLOCKS))
def test_a_clock_that_jumps_changes_nothing(
    name: str,
    trial: int,
    jumping_clock: Path,
    tmp_path: Path,
    undisturbed_commands: Callable[[str], Undisturbed],
) -> None:
    """The clock goes a year forward or back at some look of each process; the next run has the right one."""
    expected = undisturbed_commands(name)
    work = Work.made(name, tmp_path)
    chance = random.Random(f"{name} {trial}")
    years, looks = (1, -1)[trial % 2], int(10 ** chance.uniform(0, 3)) - 1
    variables = {"LD_PRELOAD": str(jumping_clock), "JUMP_BY": str(years * _YEAR), "JUMP_AFTER": str(looks)}
    assert work.end(work.start(**variables)) == 0
    assert work.products() == expected.products
    assert work.litter() == []
    _check(work, expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A folder on a file system of its own; skips where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    return place


_FULL = """
set -e
mount -t tmpfs -o size={size}k tmpfs {disk} && mkdir {disk}/work {disk}/tmp && cp {sources} {disk}/work &&
printf %s '{former}' > {disk}/work/{output} && cd {disk}/work && export TMPDIR={disk}/tmp
set +e
{python} -P -m onnxport {command} > /dev/null; echo code $?
cat {output}; ls -A {disk}/work {disk}/tmp
"""


@pytest.mark.parametrize(
    ("name", "room"),
    [
        pytest.param(name, room, marks=() if (name, room) == ("convert", 16) else pytest.mark.exhaustive)
        for name in ("convert", "convert-tflite", "quantize", "optimize", "export")
        for room in (*range(8, 128, 8), *range(128, 328, 40))
    ],
)
def test_a_small_disk_keeps_the_old_artefact(name: str, room: int, small_disk: Path) -> None:
    """ENOSPC for real, on a tmpfs in a mount namespace with `room` kilobytes beside the sources."""
    command = COMMANDS[name]
    output = command[command.index("-o") + 1]
    source = LINEAR if name == "export" else DIGITS
    script = _FULL.format(
        size=4 * -(-source.stat().st_size // 4096) + room,
        disk=small_disk,
        sources=source,
        former=FORMER.decode(),
        output=output,
        python=sys.executable,
        command=" ".join(command),
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ONNXPORT_CACHE": str(small_disk / "cache")}
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script],
        capture_output=True,
        env=environment,
        check=False,
        timeout=TIMEOUT,
    )
    if b"code " not in done.stdout:
        pytest.skip(f"no file system of its own: {done.stderr[-200:]!r}")
    code = int(done.stdout.partition(b"code ")[2].split()[0])
    said = done.stderr.decode()
    assert code in (0, 6), said
    assert "Traceback" not in said
    assert (FORMER in done.stdout) == (code != 0)
    assert b".onnxport-" not in done.stdout
