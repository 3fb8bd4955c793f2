"""Runtimes in processes of their own, which the next runtime takes over."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from onnxport.core.child_process import reuse_children
from onnxport.core.errors import MachineError
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.options import RuntimeOptions
from tests.validate import tflite_files

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
FEEDS = {"images,1:0": np.ones((2, 3), np.float32), "count": np.array([5])}


def process_of(runtime: IsolatedRuntime) -> int:
    return runtime._process.child._process.pid


def digits(runtime: IsolatedRuntime) -> np.ndarray:
    (spec,) = runtime.inputs
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    image = np.random.default_rng(0).random(shape, np.float32)
    (answer,) = runtime.run({spec.name: image}).values()
    return answer


def test_the_candidate_takes_over_the_process_of_the_reference(tmp_path: Path) -> None:
    tflite = tflite_files.chain(tmp_path / "m.tflite", tflite_files.chain_manifest())
    with reuse_children():
        with IsolatedRuntime(DIGITS) as reference:
            first, before = digits(reference), process_of(reference)
        with IsolatedRuntime(tflite) as candidate:
            assert candidate.run(FEEDS)["counted"] == [7]
            assert process_of(candidate) == before
            os.kill(process_of(candidate), signal.SIGSEGV)
            with pytest.raises(MachineError, match=r"LiteRT running .*m.tflite crashed"):
                candidate.run(FEEDS)
        with IsolatedRuntime(DIGITS) as another:
            assert process_of(another) != before, "that one crashed"
            np.testing.assert_array_equal(digits(another), first)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_taken_over_loads_the_runtime_before_there_is_a_model(tmp_path: Path) -> None:
    with reuse_children():
        with IsolatedRuntime(DIGITS) as reference:
            digits(reference)
        with IsolatedRuntime(tmp_path / "m.tflite") as candidate:
            libraries = Path(f"/proc/{process_of(candidate)}/maps")
            deadline = time.monotonic() + 20
            while "litert" not in libraries.read_text():
                assert time.monotonic() < deadline, "it waits for the model"
                time.sleep(0.01)
            tflite_files.chain(tmp_path / "m.tflite", tflite_files.chain_manifest())
            assert candidate.run(FEEDS)["counted"] == [7]


def test_runtimes_that_are_open_together_have_a_process_each() -> None:
    with reuse_children(), IsolatedRuntime(DIGITS) as one, IsolatedRuntime(DIGITS) as other:
        np.testing.assert_array_equal(digits(one), digits(other))
        assert process_of(one) != process_of(other)


def test_a_second_close_gives_nothing_back() -> None:
    with reuse_children():
        first = IsolatedRuntime(DIGITS)
        beside = first.beside(RuntimeOptions(level="disable"))
        digits(first)
        beside.close()
        second = IsolatedRuntime(DIGITS)
        first.close()  # the process is the second one's now
        assert process_of(second) == process_of(first)
        third = IsolatedRuntime(DIGITS)
        assert process_of(third) != process_of(second)
        np.testing.assert_array_equal(digits(second), digits(third))
        second.close()
        third.close()
