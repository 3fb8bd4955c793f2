"""Artefacts are sets of files that appear whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from onnxport.artifact import Artifact, Staging
from onnxport.errors import InputError, MachineError, UsageError


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
        ("model.bin", b"x", "no model format"),
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
            "import os, sys; from pathlib import Path; from onnxport.artifact import Staging\n"
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
        "from onnxport.artifact import Staging, writing\n"
        "from onnxport.errors import MachineError\n"
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
