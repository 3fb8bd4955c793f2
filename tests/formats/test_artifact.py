"""Artefacts are sets of files that appear whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.formats.artifact import Artifact, Staging


def test_the_digest_is_of_the_content_and_not_of_the_name(tmp_path: Path) -> None:
    for name, content in (("a.onnx", b"one"), ("b.onnx", b"one"), ("c.onnx", b"two")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (Artifact.open(tmp_path / name).digest() for name in ("a.onnx", "b.onnx", "c.onnx"))
    assert a == b != c


def test_the_digest_covers_companions(tmp_path: Path) -> None:
    main, data = tmp_path / "m.onnx", tmp_path / "m.data"
    main.write_bytes(b"graph")
    data.write_bytes(b"weights")
    before = Artifact(main, "onnx", (data,)).digest()
    data.write_bytes(b"Weights")
    assert Artifact(main, "onnx", (data,)).digest() != before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.onnx", None, "does not exist"),
        ("empty.onnx", b"", "is empty"),
        ("model.bin", b"x", "no known extension of a model format"),
    ],
)
def test_what_is_no_artefact_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        Artifact.open(tmp_path / name)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        Artifact.open(tmp_path)


def test_files_appear_under_their_final_names_only_at_the_commit(tmp_path: Path) -> None:
    output = tmp_path / "model.tflite"
    output.write_bytes(b"old")
    with Staging(output) as staging:
        staged = staging.folder / "new"
        staged.write_bytes(b"new")
        assert output.read_bytes() == b"old"
        staging.commit({staged: output})
    assert output.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def half() -> None:
        with Staging(tmp_path / "model.tflite") as staging:
            (staging.folder / "half").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; from pathlib import Path; from onnxport.formats.artifact import Staging\n"
            "with Staging(Path(sys.argv[1])): os.kill(os.getpid(), 9)",
            str(tmp_path / "model.tflite"),
        ],
        check=False,
    )
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    with Staging(tmp_path / "model.tflite"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_live_run_beside_us_is_not_swept(tmp_path: Path) -> None:
    with Staging(tmp_path / "a.tflite") as first, Staging(tmp_path / "b.tflite"):
        assert first.folder.is_dir()


def test_a_missing_output_folder_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mkdir -p"), Staging(tmp_path / "no" / "model.tflite"):
        pass


def test_a_size_limit_while_committing_is_the_machines_fault(tmp_path: Path) -> None:
    """RLIMIT_FSIZE gives the same refusal as a full disk, without filling one."""
    script = (
        "import sys; from pathlib import Path\n"
        "from onnxport.formats.artifact import Staging, writing\n"
        "from onnxport.core.errors import MachineError\n"
        "output = Path(sys.argv[1])\n"
        "try:\n"
        "    with Staging(output) as staging, writing(output):\n"
        "        (staging.folder / 'x').write_bytes(bytes(100_000))\n"
        "except MachineError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.tflite")],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )
    assert "cannot be written: File too large; a file size limit is set" in output.stdout
    assert os.listdir(tmp_path) == []


def test_machine_error_is_not_raised_for_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InputError), Staging(tmp_path / "model.tflite"):
        raise InputError("the input is at fault")
    assert not issubclass(InputError, MachineError)


def package(folder: Path, said: str) -> Path:
    folder.mkdir()
    (folder / "Manifest.json").write_text(said)
    return folder


# Puts a package in another's place, in a process that ends itself where `os.replace` is called the nth time.
REPLACING = """
import os, signal, sys
from pathlib import Path
import onnxport.formats.artifact as artifact
output, exchanges, last = Path(sys.argv[1]), sys.argv[2] == "exchange", int(sys.argv[3])
right, calls = os.replace, []
def replace(*paths):
    calls.append(paths)
    if len(calls) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    right(*paths)
os.replace = replace
if not exchanges:
    artifact.exchange = lambda one, other: False
with artifact.Staging(output, folder=True) as staging:
    made = staging.folder / "made"
    made.mkdir()
    (made / "Manifest.json").write_text("new")
    staging.commit_folder(made, output)
"""


def replacing(output: Path, way: str, last: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", REPLACING, str(output), way, str(last)], check=False
    ).returncode


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_a_folder_takes_the_place_of_another(tmp_path: Path, way: str) -> None:
    output = package(tmp_path / "model.mlpackage", "old")
    assert replacing(output, way, last=0) == 0
    assert (output / "Manifest.json").read_text() == "new"
    assert os.listdir(tmp_path) == ["model.mlpackage"]


@pytest.mark.parametrize("last", [1, 2])
def test_a_run_killed_between_two_renames_loses_no_package(tmp_path: Path, last: int) -> None:
    output = package(tmp_path / "model.mlpackage", "old")
    assert replacing(output, "two renames", last) == -9
    assert len(os.listdir(tmp_path)) == 3 - last, "the run was killed somewhere else"
    with Staging(tmp_path / "other.mlpackage", folder=True):
        pass
    assert (output / "Manifest.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["model.mlpackage"]


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system has no exchange of names")
def test_an_older_package_is_there_at_every_moment(tmp_path: Path) -> None:
    """The system exchanges the two in one step: nothing is renamed away that a kill could leave there."""
    output = package(tmp_path / "model.mlpackage", "old")
    assert replacing(output, "exchange", last=1) == 0
    assert (output / "Manifest.json").read_text() == "new"


def test_a_link_to_a_package_is_replaced_and_its_target_is_not(tmp_path: Path) -> None:
    real = package(tmp_path / "real.mlpackage", "old")
    output = tmp_path / "model.mlpackage"
    output.symlink_to(real)
    assert replacing(output, "exchange", last=0) == 0
    assert not output.is_symlink()
    assert (real / "Manifest.json").read_text() == "old"


def test_what_a_killed_run_of_the_same_number_left_is_swept(tmp_path: Path) -> None:
    """In one container after another every run has the same process number."""
    stale = tmp_path / f".onnxport-{os.getpid()}-0123456789ab"
    stale.mkdir()
    with Staging(tmp_path / "a.tflite") as first, Staging(tmp_path / "b.tflite"):
        assert first.folder.is_dir()
    assert os.listdir(tmp_path) == []
