"""What is wrong with a folder of samples, or with a metric of the user's: said with file and key, nothing left."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox, unprivileged

VALIDATE = ("validate", "model.onnx", "model.onnx")
READ = (*VALIDATE, "--inputs", "samples")

CASES: dict[str, Case] = {}
case = registering(CASES)


def samples(sandbox: Sandbox) -> Path:
    folder = sandbox.folder / "samples"
    folder.mkdir()
    return folder


def npz(sandbox: Sandbox, **arrays: object) -> Path:
    path = samples(sandbox) / "a.npz"
    np.savez(path, **(arrays or {"image": np.ones((1, 1, 8, 8), np.float32)}))  # type: ignore[arg-type]
    return path


def header_of_terabytes() -> bytes:
    """An .npy file that claims 32 TB and holds none."""
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 8), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


# ---- arrays


@case(4, "samples/a.npz lacks the input 'image'", "it has 'other'")
def array_of_another_input(sandbox: Sandbox) -> tuple[str | Path, ...]:
    npz(sandbox, other=np.ones(1, np.float32))
    return READ


@case(4, "'image' in samples/a.npz is float64", "save it as float32")
def array_of_another_dtype(sandbox: Sandbox) -> tuple[str | Path, ...]:
    npz(sandbox, image=np.ones((1, 1, 8, 8)))
    return READ


@case(4, "'image' in samples/a.npz has shape [1, 1, 8, 9]", "image: float32[N, 1, 8, 8]")
def array_of_another_shape(sandbox: Sandbox) -> tuple[str | Path, ...]:
    npz(sandbox, image=np.ones((1, 1, 8, 9), np.float32))
    return READ


def with_central_directory(path: Path, offset: int, bits: int) -> None:
    """Changes a byte of the first member in both of an archive's two lists of members."""
    data = bytearray(path.read_bytes())
    data[offset] |= bits
    data[data.find(b"PK\x01\x02") + offset + 2] |= bits
    path.write_bytes(data)


@case(4, "samples/a.npz cannot be read: File 'image.npy' is encrypted")
def encrypted_archive(sandbox: Sandbox) -> tuple[str | Path, ...]:
    with_central_directory(npz(sandbox), 6, 1)
    return READ


@case(4, "samples/a.npz cannot be read: That compression method is not supported")
def archive_compressed_in_an_unknown_way(sandbox: Sandbox) -> tuple[str | Path, ...]:
    with_central_directory(npz(sandbox), 8, 99)
    return READ


@case(4, "samples/a.npz cannot be read", "does not fit into memory")
def archive_that_claims_terabytes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    with zipfile.ZipFile(samples(sandbox) / "a.npz", "w") as archive:
        archive.writestr("image.npy", header_of_terabytes())
    return READ


@case(4, "samples/a.npy cannot be read", "does not fit into memory")
def array_that_claims_terabytes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (samples(sandbox) / "a.npy").write_bytes(header_of_terabytes())
    return READ


@case(4, "samples holds no inputs: a.npz cannot be read as inputs")
def sample_that_is_a_pipe(sandbox: Sandbox) -> tuple[str | Path, ...]:
    os.mkfifo(samples(sandbox) / "a.npz")
    return READ


@case(4, "input_0.pb cannot be read: its values are in another file")
def tensor_with_its_values_elsewhere(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = samples(sandbox) / "test_data_set_0"
    folder.mkdir()
    tensor = onnx.numpy_helper.from_array(np.ones((1, 1, 8, 8), np.float32))
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    return READ


@case(4, "samples cannot be read", "Permission denied", before_exec=unprivileged)
def folder_without_permission(sandbox: Sandbox) -> tuple[str | Path, ...]:
    npz(sandbox).parent.chmod(0)
    return READ


# ---- images


@case(4, "samples/a.png cannot be read")
def image_of_no_bytes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (samples(sandbox) / "a.png").touch()
    return READ


@case(4, "samples/preprocess.yaml has no setting 'rezise'", "the settings are resize")
def sidecar_with_an_unknown_setting(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = samples(sandbox)
    (folder / "a.png").touch()
    (folder / "preprocess.yaml").write_text("rezise: 8")
    return READ


@case(4, "samples/preprocess.yaml cannot be read", "could not determine a constructor")
def sidecar_that_wants_to_run_something(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = samples(sandbox)
    (folder / "a.png").touch()
    (folder / "preprocess.yaml").write_text("scale: !!python/object/apply:os.system ['touch pwned']")
    return READ


@pytest.mark.parametrize("name", CASES)
def test_bad_sample_is_said_with_file_and_key(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


# ---- metrics: what stands in the function, and what is said of it

METRICS = {
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise GeneratorExit": "GeneratorExit",
    "import sys; sys.exit(0)": "SystemExit: 0",
    "raise Unspeakable": "Unspeakable",
    "raise ValueError('\\x1b[31mred')": "ValueError: \\x1b[31mred",
    "return 10 ** 400": "gave a int",
    "return None": "gave a NoneType",
    "return reference['logits']": "gave a ndarray",
    "candidate['logits'][:] = 0": "read-only",
    "import time; time.sleep(60)": "it did not end within 2 s; give it more time with --timeout SECONDS",
}


def metric(sandbox: Sandbox, body: str) -> tuple[str, ...]:
    code = f"""
import onnxport

print("the module speaks")

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError

@onnxport.metric(better="higher")
def own(reference, candidate):
    {body}
"""
    (sandbox.folder / "mine.py").write_text(code)
    return (*VALIDATE, "--metric", "mine:own")


@pytest.mark.parametrize("body", METRICS)
def test_metric_that_fails_is_named_and_never_the_command_s_end(body: str, sandbox: Sandbox) -> None:
    says = ("the metric 'mine:own'", METRICS[body])
    assert_fails(Case(2, lambda sandbox: (*metric(sandbox, body), "--timeout", "2"), says), sandbox)


def test_what_a_metric_prints_or_where_it_goes_changes_no_result(sandbox: Sandbox) -> None:
    body = "import os; os.chdir('/'); print('the metric speaks'); return 1.0"
    outcome = sandbox.run(*metric(sandbox, body), "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.document["exit_code"] == 0
    assert "the module speaks" in outcome.stderr
    assert "the metric speaks" in outcome.stderr
