"""LiteRT behind the Runtime contract, in this process and in a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnxport
from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.manifest import Manifest
from onnxport.runtimes.base import RunError
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.litert import TfliteRuntime
from onnxport.validate.sessions import Oriented
from tests.validate import tflite_files

X = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], np.float32)
FEEDS = {"images,1:0": X, "count": np.array([5])}
ANSWER = np.exp(X) + np.array([1, 2, 3], np.float32)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tflite_files.chain(tmp_path_factory.mktemp("ours") / "m.tflite", tflite_files.chain_manifest())


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tflite_files.chain(tmp_path_factory.mktemp("foreign") / "m.tflite")


def test_the_manifest_gives_names_order_and_dtypes_of_the_source(ours: Path) -> None:
    with onnxport.load(ours) as runtime:
        assert runtime.inputs == (
            TensorSpec("images,1:0", "float32", (None, 3)),
            TensorSpec("count", "int64", (1,)),
        )
        assert [(spec.name, spec.dtype) for spec in runtime.outputs] == [
            ("answers,1:0", "float32"),
            ("counted", "int64"),
        ]
        answers = runtime.run(FEEDS)
    np.testing.assert_allclose(answers["answers,1:0"], ANSWER, rtol=1e-6)
    assert answers["counted"] == [7]
    assert answers["counted"].dtype == np.int64


def test_an_open_batch_is_resized_from_run_to_run(ours: Path) -> None:
    with TfliteRuntime(ours) as runtime:
        for batch in (1, 3, 2, 3):
            x = np.full((batch, 3), batch, np.float32)
            answer = runtime.run({"images,1:0": x, "count": np.array([0])})["answers,1:0"]
            np.testing.assert_allclose(answer, np.exp(x) + np.array([1, 2, 3]), rtol=1e-6)


def test_an_int64_that_int32_cannot_hold_is_refused(ours: Path) -> None:
    with (
        TfliteRuntime(ours) as runtime,
        pytest.raises(UsageError, match="'count' has values from 2147483648"),
    ):
        runtime.run(FEEDS | {"count": np.array([2**31])})


def test_taps_run_without_delegates_and_only_surviving_ones_are_offered(ours: Path) -> None:
    with TfliteRuntime(ours) as runtime:
        assert runtime.taps == {"hidden"}
        answers = runtime.run(FEEDS, taps=["hidden"])
        np.testing.assert_allclose(answers["hidden"], np.exp(X), rtol=1e-6)
        np.testing.assert_allclose(answers["answers,1:0"], ANSWER, rtol=1e-6)
        with pytest.raises(UsageError, match="gone"):
            runtime.run(FEEDS, taps=["gone"])


def test_a_permuted_artefact_shows_its_own_shape_and_says_how_it_is_permuted(tmp_path: Path) -> None:
    path = tflite_files.chain(tmp_path / "m.tflite", tflite_files.chain_manifest((1, 0)))
    with TfliteRuntime(path) as runtime:
        assert runtime.permutations == {"images,1:0": (1, 0), "answers,1:0": (1, 0)}
        assert runtime.inputs[0].shape == (None, 3)
        answers = runtime.run(FEEDS, taps=["hidden"])
        # The user feeds and gets the artefact's layout; taps come back in the source's.
        np.testing.assert_allclose(answers["answers,1:0"], ANSWER, rtol=1e-6)
        np.testing.assert_allclose(answers["hidden"], np.exp(X).T, rtol=1e-6)
        oriented = Oriented(runtime)
        assert oriented.inputs[0].shape == (3, None)
        answer = oriented.run(FEEDS | {"images,1:0": X.T})["answers,1:0"]
        np.testing.assert_allclose(answer, ANSWER.T, rtol=1e-6)


def test_a_foreign_file_goes_by_its_signature(foreign: Path) -> None:
    with onnxport.load(foreign) as runtime:
        assert runtime.inputs == (TensorSpec("x", "float32", (None, 3)), TensorSpec("n", "int32", (1,)))
        assert [spec.name for spec in runtime.outputs] == ["y", "m"]
        assert not runtime.taps
        assert runtime.run({"x": X, "n": np.array([1], np.int32)})["m"] == [3]


def test_a_file_without_signature_goes_by_its_tensors(tmp_path: Path) -> None:
    path = tflite_files.write(tmp_path / "m.tflite", tflite_files.CHAIN, (), ())
    with onnxport.load(path) as runtime:
        assert [spec.name for spec in runtime.outputs] == ["y", "m"]


def test_state_is_forgotten_between_runs(tmp_path: Path) -> None:
    with onnxport.load(tflite_files.stateful(tmp_path / "m.tflite")) as runtime:
        x = np.ones((1, 2, 1), np.float32)
        first = runtime.run({"x": x})["y"]
        np.testing.assert_array_equal(runtime.run({"x": x})["y"], first)
    np.testing.assert_allclose(first.ravel(), [np.tanh(1), np.tanh(1 + np.tanh(1))], rtol=1e-5)


def test_start_up_says_nothing_on_stderr(ours: Path) -> None:
    feeds = "{'images,1:0': np.ones((1, 3), 'f4'), 'count': np.array([1])}"
    code = f"import onnxport, numpy as np; onnxport.load({str(ours)!r}).run({feeds})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"neither", "is not a TFLite model"),
        (b"\xff\xff\xff\x7fTFL3" + b"\xff" * 60, "is truncated or damaged"),
    ],
)
def test_a_file_that_is_no_tflite_is_an_input_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        TfliteRuntime(path)


def test_half_a_file_is_an_input_error(tmp_path: Path, ours: Path) -> None:
    path = tmp_path / "half.tflite"
    path.write_bytes(ours.read_bytes()[: ours.stat().st_size // 2])
    with pytest.raises(InputError):
        TfliteRuntime(path).run(FEEDS)


def test_sizes_that_the_graph_refuses_are_named_and_the_runtime_stays_usable(tmp_path: Path) -> None:
    text = """
    func.func @main(%a: tensor<?x3xf32>, %b: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %c = "tfl.add"(%a, %b) {fused_activation_function = "NONE"}
        : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
      func.return %c : tensor<?x3xf32>
    }
    """
    path = tflite_files.write(tmp_path / "m.tflite", text, ("a", "b"), ("c",))
    with TfliteRuntime(path) as runtime:
        with pytest.raises(RunError, match=r"a \[2, 3\], b \[5, 3\]"):
            runtime.run({"a": np.ones((2, 3), np.float32), "b": np.ones((5, 3), np.float32)})
        good = runtime.run({"a": np.ones((2, 3), np.float32), "b": np.ones((2, 3), np.float32)})
        assert (good["c"] == 2).all()


def test_an_isolated_runtime_answers_as_one_in_this_process(ours: Path) -> None:
    with IsolatedRuntime(ours) as isolated, TfliteRuntime(ours) as direct:
        assert isolated.inputs == direct.inputs
        assert isolated.outputs == direct.outputs
        assert isolated.taps == direct.taps
        assert isolated.name == direct.name
        there, here = isolated.run(FEEDS, taps=["hidden"]), direct.run(FEEDS, taps=["hidden"])
        assert there.keys() == here.keys()
        for name, value in here.items():
            np.testing.assert_array_equal(there[name], value)


def test_the_file_may_be_written_after_the_process_was_started(tmp_path: Path, ours: Path) -> None:
    later = tmp_path / "later.tflite"
    with IsolatedRuntime(later) as runtime:
        later.write_bytes(ours.read_bytes())
        assert runtime.run(FEEDS)["counted"] == [7]


def test_errors_of_the_runtime_cross_the_process_border(tmp_path: Path, ours: Path) -> None:
    with IsolatedRuntime(ours) as runtime, pytest.raises(UsageError, match="lack"):
        runtime.run({})
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"neither")
    with IsolatedRuntime(bad) as runtime, pytest.raises(InputError, match="not a TFLite model"):
        runtime.run(FEEDS)


def test_a_crash_is_a_machine_error(ours: Path) -> None:
    with IsolatedRuntime(ours) as runtime:
        runtime.run(FEEDS)
        os.kill(runtime._process.child._process.pid, signal.SIGSEGV)
        with pytest.raises(MachineError, match=r"LiteRT running .* crashed \(signal SIGSEGV\)"):
            runtime.run(FEEDS)


def test_a_hang_is_a_machine_error(ours: Path) -> None:
    with IsolatedRuntime(ours, timeout=2.0) as runtime:
        runtime.run(FEEDS)
        os.kill(runtime._process.child._process.pid, signal.SIGSTOP)
        with pytest.raises(MachineError, match="hung: no answer within 2 s"):
            runtime.run(FEEDS)


def test_a_manifest_survives_the_file(ours: Path) -> None:
    """The artefact's own note is read back as it was written."""
    manifest = tflite_files.chain_manifest()
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.to_json().encode() in ours.read_bytes()
