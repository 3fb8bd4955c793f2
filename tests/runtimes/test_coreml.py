"""Core ML behind the Runtime contract: what is around `predict` anywhere, `predict` itself on macOS only."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxport
from onnxport.converters.coreml import library  # noqa: F401 - before coremltools
from onnxport.core.errors import InputError, MissingDependencyError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import Port
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes import load
from onnxport.runtimes.coreml import CoremlRuntime, check_system, first_line, from_core_ml, to_core_ml
from onnxport.runtimes.mlprogram import MilRuntime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.settings import runtime_options
from onnxport.validate.params import ValidateParams
from onnxport.validate.sessions import isolated
from tests.runtimes.mlprogram.programs import builder, write

ON_MAC = platform.system() == "Darwin"
PREDICT = RuntimeOptions(runtime="predict")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """exp(x) + n, of a float32 and an int32 input."""
    mb = builder()

    def build(x: Any, n: Any) -> list[Any]:
        return [mb.add(x=mb.exp(x=x), y=mb.cast(x=n, dtype="fp32"), name="y")]

    feeds = {"x": np.ones((1, 4), np.float32), "n": np.ones((1, 4), np.int32)}
    return write(tmp_path_factory.mktemp("package"), feeds, build, "iOS15").path


@pytest.mark.skipif(ON_MAC, reason="Core ML is here")
def test_where_core_ml_is_not_the_evaluator_answers_and_predict_says_what_to_do(package: Path) -> None:
    with load(package) as runtime:
        assert isinstance(runtime, MilRuntime)
    with pytest.raises(MissingDependencyError, match=r"Core ML is not available on Linux; run this on macOS"):
        load(package, PREDICT)


@pytest.mark.skipif(not ON_MAC, reason="Core ML runs on macOS")
@pytest.mark.parametrize("units", ["all", "cpu"])
def test_core_ml_computes_what_the_evaluator_does(package: Path, units: Any) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 4)).astype(np.float32),
        "n": rng.integers(-9, 9, (1, 4)).astype(np.int32),
    }
    with (
        MilRuntime(package) as evaluated,
        CoremlRuntime(package, RuntimeOptions(units=units)) as predicted,
    ):
        assert predicted.name.startswith("Core ML of macOS")
        assert predicted.inputs == evaluated.inputs
        np.testing.assert_allclose(predicted.run(feeds)["y"], evaluated.run(feeds)["y"], rtol=1e-5)


@pytest.mark.skipif(not ON_MAC, reason="Core ML runs on macOS")
def test_core_ml_is_the_default_on_a_mac(package: Path) -> None:
    with onnxport.load(package) as runtime:
        assert isinstance(runtime, CoremlRuntime)


def test_feeds_are_given_in_types_that_core_ml_s_arrays_have(package: Path) -> None:
    function = read_package(package).functions["main"]
    ports = (Port("in/x", "x", "float64", (1, 4)), Port("in/n", "n", "int64", (1, 4)))
    feeds = {"in/x": np.array([[1.5, 2, 3, 4]]), "in/n": np.array([[1, -2, 3, 4]])}
    given = to_core_ml(ports, function, feeds)
    assert {name: array.dtype.name for name, array in given.items()} == {"x": "float32", "n": "int32"}
    np.testing.assert_array_equal(given["n"], feeds["in/n"])
    with pytest.raises(UsageError, match=r"'in/n' has values from 1 to 4294967296.*within -2147483648"):
        to_core_ml(ports, function, feeds | {"in/n": np.array([[1, 2, 3, 2**32]])})


def test_answers_come_back_in_the_source_s_names_ranks_and_types() -> None:
    ports = (Port("out/0", "v_0", "int64", (2,)), Port("flag", "flag", "bool", ()))
    found = from_core_ml(ports, {"v_0": np.array([3, -1], np.int32), "flag": np.array([1.0], np.float32)})
    assert found["out/0"].dtype == np.int64
    assert found["flag"].dtype == np.bool_
    assert found["flag"].shape == ()
    assert found["flag"]


@pytest.mark.parametrize(("system", "refused"), [("13.6", True), ("14.0", False), ("26.1", False)])
def test_a_package_younger_than_the_system_is_refused(system: str, refused: bool) -> None:
    if refused:
        with pytest.raises(InputError, match=r"needs macOS 14, this is 13\.6; convert it with an older"):
            check_system(Path("m.mlpackage"), 8, system)
    else:
        check_system(Path("m.mlpackage"), 8, system)


def test_of_core_ml_s_errors_the_first_line_is_said() -> None:
    error = RuntimeError(
        "Error compiling model: \"the op 'x' is bad\".\n{\n NSLocalizedDescription = long\n}"
    )
    assert first_line(error) == "Error compiling model: \"the op 'x' is bad\"."
    assert first_line(RuntimeError("")) == "RuntimeError"


def test_settings_of_packages() -> None:
    options = runtime_options("coreml", {"runtime": "evaluator", "units": "cpu-ne"}, "--candidate-runtime")
    assert (options.runtime, options.units) == ("evaluator", "cpu-ne")
    with pytest.raises(UsageError, match="'tpu' is not allowed for units; give all, cpu, cpu-gpu, cpu-ne"):
        runtime_options("coreml", {"units": "tpu"}, "--candidate-runtime")


def test_a_package_runs_in_a_process_of_its_own(package: Path) -> None:
    params = ValidateParams(candidate_runtime={"runtime": "evaluator"})
    feeds = {"x": np.zeros((1, 4), np.float32), "n": np.arange(4, dtype=np.int32).reshape(1, 4)}
    with isolated(Artifact.open(package), params, "candidate") as runtime:
        assert runtime.name == "evaluator of ML programs, as Apple documents them"
        assert "Core ML itself runs on macOS only" in runtime.remarks[0]
        np.testing.assert_array_equal(runtime.run(feeds)["y"], [[1, 2, 3, 4]])
