"""Packages with several functions: made of several models, and those that coremltools' `save_multifunction` makes."""

from __future__ import annotations

from pathlib import Path

import coremltools as ct
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.converters.app_metadata import parse_functions
from onnxport.core.errors import CannotConvertError, InputError, NotProvenError, UsageError
from onnxport.formats.model import Model
from onnxport.inspection import inspect_model
from tests.conformance.harness import Array
from tests.converters.coreml.packages import convert, spec_of
from tests.converters.tflite.models import run_onnx

RANDOM = np.random.default_rng(11)
WEIGHTS = {
    "W": RANDOM.normal(0, 0.1, (64, 256)).astype(np.float32),
    "B": RANDOM.normal(0, 0.1, (256, 64)).astype(np.float32),
}
FEEDS = {"one": {"x": RANDOM.normal(size=(3, 64)).astype(np.float32)}}
FEEDS["two"] = {"u": RANDOM.normal(size=(5, 64)).astype(np.float32)}


def save(
    path: Path, op: str, given: str, gives: str, rows: int | str, weights: dict[str, Array] = WEIGHTS
) -> Path:
    """`gives` = op(`given` W) B."""
    nodes = [
        helper.make_node("MatMul", [given, "W"], ["h"]),
        helper.make_node(op, ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "B"], [gives]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, [rows, 64])],
        [helper.make_tensor_value_info(gives, TensorProto.FLOAT, [rows, 64])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "one": save(folder / "one.onnx", "Relu", "x", "y", 3),
        "two": save(folder / "two.onnx", "Tanh", "u", "v", 5),
    }


@pytest.fixture(scope="module")
def made(models: dict[str, Path]) -> onnxport.ConversionResult:
    return onnxport.convert_model(
        models["one"],
        to="coreml",
        output=models["one"].with_name("both.mlpackage"),
        minimum_target="iOS18",
        function={"two": models["two"]},
    )


def weight_file(package: Path) -> Path:
    return package / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"


def answer(package: Path, function: str, feeds: dict[str, Array]) -> Array:
    with onnxport.load(package, function=function) as runtime:
        (found,) = runtime.run(feeds).values()
    return found


def wanted(model: Path, feeds: dict[str, Array]) -> Array:
    (found,) = run_onnx(Model.load(model), feeds).values()
    return np.asarray(found)


def test_each_function_answers_as_its_model(made: onnxport.ConversionResult, models: dict[str, Path]) -> None:
    for function, key in (("", "one"), ("main", "one"), ("two", "two")):
        np.testing.assert_allclose(
            answer(made.path, function, FEEDS[key]), wanted(models[key], FEEDS[key]), rtol=1e-4, atol=1e-5
        )


def test_each_function_is_proven_against_its_own_model(
    made: onnxport.ConversionResult, models: dict[str, Path]
) -> None:
    records = made.run.artifacts
    assert [(each.function, each.report.verdict) for each in records] == [
        ("main", "proven"),
        ("two", "proven"),
    ]
    assert [each.report.reference.path for each in records] == [str(models["one"]), str(models["two"])]
    assert {each.path for each in records} == {str(made.path)}


def test_weights_that_are_alike_stand_there_once(made: onnxport.ConversionResult) -> None:
    weights = sum(array.nbytes for array in WEIGHTS.values())
    assert weights <= weight_file(made.path).stat().st_size < 1.02 * weights


def test_weights_of_one_name_and_other_values_stay_apart(models: dict[str, Path], tmp_path: Path) -> None:
    other = {name: -2 * array for name, array in WEIGHTS.items()}
    other["B"] = WEIGHTS["B"]
    third = save(tmp_path / "third.onnx", "Relu", "x", "y", 3, other)
    package = tmp_path / "m.mlpackage"
    onnxport.convert_model(
        models["one"], to="coreml", output=package, minimum_target="iOS18", function=[f"third={third}"]
    )
    for function, model in (("main", models["one"]), ("third", third)):
        found = answer(package, function, FEEDS["one"])
        np.testing.assert_allclose(found, wanted(model, FEEDS["one"]), rtol=1e-4, atol=1e-5)
    assert weight_file(package).stat().st_size > 1.4 * sum(array.nbytes for array in WEIGHTS.values())


def test_weights_that_one_function_has_twice_are_shared_with_others(tmp_path: Path) -> None:
    square = RANDOM.normal(0, 0.1, (64, 64)).astype(np.float32)
    twice = {"W": square, "B": square.copy()}
    paths = [save(tmp_path / f"{op}.onnx", op, "x", "y", 3, twice) for op in ("Relu", "Tanh")]
    package = tmp_path / "m.mlpackage"
    onnxport.convert_model(
        paths[0], to="coreml", output=package, minimum_target="iOS18", function={"other": paths[1]}
    )
    assert weight_file(package).stat().st_size < 1.1 * square.nbytes


def test_the_description_is_what_coremltools_writes(
    made: onnxport.ConversionResult, models: dict[str, Path], tmp_path: Path
) -> None:
    theirs, ours = spec_of(joined_by_coremltools(models, tmp_path)), spec_of(made.path)
    assert ours.description.defaultFunctionName == theirs.description.defaultFunctionName == "main"
    assert set(ours.mlProgram.functions) == set(theirs.mlProgram.functions) == {"main", "two"}
    assert ours.specificationVersion == theirs.specificationVersion
    assert list(ours.description.functions) == list(theirs.description.functions)
    assert not ours.description.input


def joined_by_coremltools(models: dict[str, Path], folder: Path) -> Path:
    for name, model in models.items():
        convert(Model.load(model), folder / f"{name}.mlpackage", minimum_target="iOS18")
    wanted = ct.utils.MultiFunctionDescriptor(str(folder / "one.mlpackage"))
    wanted.add_function(str(folder / "two.mlpackage"), "main", "two")
    wanted.default_function_name = "main"
    ct.utils.save_multifunction(wanted, str(folder / "theirs.mlpackage"))
    return folder / "theirs.mlpackage"


def test_a_package_of_others_is_judged_by_the_function_that_is_named(
    models: dict[str, Path], tmp_path: Path
) -> None:
    package = joined_by_coremltools(models, tmp_path)
    assert onnxport.validate_model(models["one"], package).verdict == "proven"
    chosen = {"function": "two"}
    assert onnxport.validate_model(models["two"], package, candidate_runtime=chosen).verdict == "proven"
    # The same names and shapes, another function.
    wrong = save(tmp_path / "wrong.onnx", "Sigmoid", "u", "v", 5)
    assert onnxport.validate_model(wrong, package, candidate_runtime=chosen).verdict == "not equivalent"
    with pytest.raises(UsageError, match=r"no function 'tow': it has main, two"):
        onnxport.validate_model(models["two"], package, candidate_runtime={"function": "tow"})


def test_a_default_of_another_name_answers(models: dict[str, Path], tmp_path: Path) -> None:
    package = joined_by_coremltools(models, tmp_path)
    file = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    spec = spec_of(package)
    spec.description.defaultFunctionName = "two"
    file.write_bytes(spec.SerializeToString())
    np.testing.assert_allclose(
        answer(package, "", FEEDS["two"]), wanted(models["two"], FEEDS["two"]), rtol=1e-4, atol=1e-5
    )
    found = inspect_model(package)
    assert [port.name for port in found.inputs] == ["u"]
    assert any("2 functions: main, two" in each and "of two" in each for each in found.unusual)


def test_nothing_leaves_where_one_function_is_not_proven(models: dict[str, Path], tmp_path: Path) -> None:
    still = {"W": WEIGHTS["W"], "B": np.zeros_like(WEIGHTS["B"])}  # answers zeros to everything
    vague = save(tmp_path / "vague.onnx", "Relu", "u", "v", 5, still)
    package = tmp_path / "m.mlpackage"
    with pytest.raises(NotProvenError, match=r"vague\.onnx is inconclusive") as failed:
        onnxport.convert_model(
            models["one"], to="coreml", output=package, minimum_target="iOS18", function={"vague": vague}
        )
    assert [each.report.verdict for each in failed.value.report.artifacts] == ["proven", "inconclusive"]
    assert not package.exists()


def test_options_are_for_the_functions_that_have_the_name(models: dict[str, Path], tmp_path: Path) -> None:
    open_one = save(tmp_path / "open.onnx", "Relu", "q", "r", "rows")
    result = onnxport.convert_model(
        models["one"],
        to="coreml",
        output=tmp_path / "m.mlpackage",
        minimum_target="iOS18",
        precision="fp16",
        weights="int8",
        shape=["q=1..8,64"],
        function={"open": open_one},
        validate=False,
    )
    assert [each.report.verdict for each in result.run.artifacts] == ["unproven", "unproven"]
    spec = spec_of(result.path)
    by_name = {each.name: each for each in spec.description.functions}
    bounds = by_name["open"].input[0].type.multiArrayType.shapeRange.sizeRanges[0]
    assert (bounds.lowerBound, bounds.upperBound) == (1, 8)
    assert list(by_name["main"].input[0].type.multiArrayType.shape) == [3, 64]
    assert weight_file(result.path).stat().st_size < 1.2 * sum(array.size for array in WEIGHTS.values())
    with pytest.raises(UsageError, match="nobody"):
        onnxport.convert_model(
            models["one"],
            to="coreml",
            output=tmp_path / "n.mlpackage",
            minimum_target="iOS18",
            shape=["nobody=1,64"],
            function={"open": open_one},
        )


def test_the_same_models_give_the_same_bytes(
    made: onnxport.ConversionResult, models: dict[str, Path]
) -> None:
    again = onnxport.convert_model(
        models["one"],
        to="coreml",
        output=models["one"].with_name("again.mlpackage"),
        minimum_target="iOS18",
        function={"two": models["two"].rename(models["two"].with_name("moved.onnx"))},
    )
    models["two"].with_name("moved.onnx").rename(models["two"])
    assert again.run.artifacts[0].digest == made.run.artifacts[0].digest


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["main=a.onnx"], "the first model is the function 'main'"),
        (["a-b=a.onnx"], "cannot name a function"),
        (["1st=a.onnx"], "cannot name a function"),
        (["a=a.onnx", "a=b.onnx"], "given twice"),
        (["a.onnx"], "has no name before '='"),
        (["a="], "does not describe"),
    ],
)
def test_a_function_that_cannot_be_meant_is_refused(given: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_functions(given)


def test_what_cannot_become_a_function_is_refused(
    made: onnxport.ConversionResult, models: dict[str, Path], tmp_path: Path
) -> None:
    def make(path: Path, target: str = "iOS18") -> None:
        onnxport.convert_model(
            models["one"],
            to="coreml",
            output=tmp_path / "m.mlpackage",
            minimum_target=target,
            function={"two": path},
        )

    with pytest.raises(UsageError, match="--minimum-target iOS18"):
        make(models["two"], "iOS17")
    with pytest.raises(InputError, match="does not exist"):
        make(tmp_path / "missing.onnx")
    with pytest.raises(InputError, match=r"give a \.onnx file"):
        make(made.path)
    unknown = save(tmp_path / "unknown.onnx", "NonZero", "u", "v", 5)
    with pytest.raises((InputError, CannotConvertError), match="unknown"):
        make(unknown)
    assert not (tmp_path / "m.mlpackage").exists()
    with pytest.raises(UsageError, match="has no 'function'"):
        onnxport.load(models["one"], function="two")
