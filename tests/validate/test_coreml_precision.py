"""What a package computes in, told by its program: packages that coremltools wrote and compressed, none of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.converters.coreml import library  # noqa: F401 - before coremltools
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.mlpackage.program import Constant, Operation, Type
from onnxport.validate.precision import coreml, kept_float32, precision_of
from onnxport.validate.precision.coreml import precision
from onnxport.validate.report import Precision
from tests.runtimes.mlprogram.programs import builder, write

Weights = Callable[[Any], Any]


def net(folder: Path, dtype: type[np.floating[Any]], opset: str = "iOS18") -> Path:
    """Two linear layers in one element type."""
    mb, rng = builder(), np.random.default_rng(0)

    def build(x: Any) -> list[Any]:
        for _ in range(2):
            x = mb.linear(x=x, weight=rng.standard_normal((64, 64)).astype(dtype), bias=np.ones(64, dtype))
            x = mb.relu(x=x)
        return [x]

    return write(folder, {"x": np.ones((1, 64), dtype)}, build, opset).path


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float32"), (np.float16, "float16")])
def test_the_products_decide_the_precision(dtype: Any, name: Precision, tmp_path: Path) -> None:
    assert precision(net(tmp_path, dtype)) == name


def test_other_operators_decide_without_products(tmp_path: Path) -> None:
    mb = builder()
    made = write(tmp_path, {"x": np.ones((1, 4), np.float16)}, lambda x: [mb.exp(x=mb.sin(x=x))], "iOS17")
    assert precision(made.path) == "float16"


def test_a_program_that_only_moves_is_unknown(tmp_path: Path) -> None:
    mb = builder()
    made = write(
        tmp_path, {"x": np.ones((2, 4), np.float32)}, lambda x: [mb.transpose(x=x, perm=[1, 0])], "iOS17"
    )
    assert precision(made.path) == "unknown"


def test_half_and_half_is_mixed(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        half = mb.matmul(x=mb.cast(x=x, dtype="fp16"), y=np.ones((4, 4), np.float16))
        return [mb.matmul(x=mb.cast(x=half, dtype="fp32"), y=np.ones((4, 4), np.float32))]

    assert precision(write(tmp_path, {"x": np.ones((1, 4), np.float32)}, build, "iOS17").path) == "mixed"


def compressed(folder: Path, how: str, opset: str) -> Path:
    """The net with its weights in fewer bits, by coremltools' own optimizers."""
    import coremltools
    import coremltools.optimize.coreml as optimize

    model = coremltools.models.MLModel(str(net(folder, np.float32, opset)), skip_model_load=True)
    config: Any = {
        "int8": lambda: optimize.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=0),
        "int4": lambda: optimize.OpLinearQuantizerConfig(
            mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32, weight_threshold=0
        ),
        "palette": lambda: optimize.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=0),
        "sparse": lambda: optimize.OpMagnitudePrunerConfig(target_sparsity=0.5, weight_threshold=0),
    }[how]()
    run = {
        "int8": optimize.linear_quantize_weights,
        "int4": optimize.linear_quantize_weights,
        "palette": optimize.palettize_weights,
        "sparse": optimize.prune_weights,
    }[how]
    output = folder / "compressed.mlpackage"
    run(model, optimize.OptimizationConfig(global_config=config)).save(str(output))
    return output


@pytest.mark.parametrize(
    ("how", "opset", "name"),
    [
        ("int8", "iOS16", "int8 weights"),
        ("int8", "iOS18", "int8 weights"),
        ("int4", "iOS18", "int4 weights"),
        ("palette", "iOS16", "palettized weights"),
        ("palette", "iOS18", "palettized weights"),
        ("sparse", "iOS16", "sparse weights"),
    ],
)
def test_weights_in_fewer_bits_name_it(how: str, opset: str, name: Precision, tmp_path: Path) -> None:
    assert precision(compressed(tmp_path, how, opset)) == name


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "int8"), (np.float16, "mixed")])
def test_activations_quantized_at_run_time_make_it_int8(dtype: Any, name: Precision, tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        steps = mb.quantize(input=x, scale=dtype(0.1), output_dtype="int8")
        back = mb.dequantize(input=steps, scale=dtype(0.1))
        return [mb.matmul(x=back, y=np.ones((4, 4), dtype))]

    assert precision(write(tmp_path, {"x": np.ones((1, 4), dtype)}, build, "iOS17").path) == name


def test_a_package_of_ours_that_lists_its_islands_is_float16(tmp_path: Path) -> None:
    mb = builder()

    def build(x: Any) -> list[Any]:
        half = mb.matmul(x=mb.cast(x=x, dtype="fp16"), y=np.ones((4, 4), np.float16))
        wide = mb.matmul(x=mb.cast(x=half, dtype="fp32"), y=np.ones((4, 4), np.float32))
        return [mb.matmul(x=wide, y=np.ones((4, 4), np.float32))]

    made = write(tmp_path, {"x": np.ones((1, 4), np.float32)}, build, "iOS17").path
    assert (precision(made), kept_float32(Artifact.open(made))) == ("float32", frozenset())
    _add_note(made, Manifest("", {}, {"coreml": {"precision": "fp32"}}, "skipped"))
    assert precision(made) == "float32"
    _add_note(made, Manifest("", {}, {"coreml": {"precision": "fp16"}}, "skipped"))
    assert precision(made) == "float16", "loops of recurrent layers compute their products in float32"
    _add_note(made, Manifest("", {}, {}, "skipped", islands=("wide", "y")))
    artifact = Artifact.open(made)
    assert (precision_of(artifact), kept_float32(artifact)) == ("float16", {"wide", "y"})


def _add_note(package: Path, note: Manifest) -> None:
    from onnxport.formats.mlpackage.files import messages

    file = next(package.rglob("model.mlmodel"))
    model = messages("Model").Model.FromString(file.read_bytes())
    model.description.metadata.userDefined[KEY] = note.to_json()
    file.write_bytes(model.SerializeToString())


def test_weights_in_float8_are_not_called_int8() -> None:
    data = Constant(np.zeros(4, np.uint8), "float8_e4m3fn")
    unpacking = Operation(
        "constexpr_blockwise_shift_scale", "", {"data": (data,)}, (("w", Type("float32", (4,))),)
    )
    assert coreml._packed(unpacking, {}) == "mixed"
