"""Pictures, labels, metadata and weights in fewer bits, read back by coremltools and run by the evaluator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.converters.app_metadata import ImageInput, parse_images
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.model import Model
from tests.conformance.harness import Array
from tests.converters.coreml.packages import convert, evaluate, spec_of
from tests.converters.tflite.models import model_of, run_onnx

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)
LABELS = ["cat", "dog", "hen", "cow"]


def classifier(batch: int | str = 1) -> Model:
    """A convolution, its mean, and scores of four classes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Softmax", ["f"], ["scores"]),
    ]
    weight = numpy_helper.from_array(RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    return model_of(nodes, {"x": X}, [weight], open_dims={"x": (batch, 3, "H", "W")} if batch != 1 else {})


def test_an_image_is_scaled_and_shifted_in_the_program(tmp_path: Path) -> None:
    model, package = classifier(), tmp_path / "m.mlpackage"
    convert(model, package, image=["x=scale:1/127.5,bias:-1,layout:BGR"])
    picture = spec_of(package).description.input[0].type.imageType
    assert (picture.width, picture.height, picture.ColorSpace.Name(picture.colorSpace)) == (8, 8, "BGR")
    wanted = run_onnx(model, {"x": X})["scores"]
    # The runtime takes what the source takes, and hands the program the pixels of it.
    np.testing.assert_allclose(evaluate(package, {"x": X})["scores"], wanted, rtol=1e-5, atol=1e-6)
    pixels = (X.astype(np.float64) + 1) * 127.5
    np.testing.assert_allclose(evaluated_raw(package, pixels), wanted, rtol=1e-5, atol=1e-6)


def test_float16_does_not_overflow_in_the_pixels_of_what_it_holds(tmp_path: Path) -> None:
    model, package = classifier(), tmp_path / "m.mlpackage"
    convert(model, package, image=["x=scale:1/255,bias:-0.5"], precision="fp16")
    far = np.full_like(X, 1000.0)  # 255000 as a pixel
    assert np.isfinite(evaluate(package, {"x": far})["scores"]).all()
    np.testing.assert_allclose(
        evaluate(package, {"x": X})["scores"], run_onnx(model, {"x": X})["scores"], atol=2e-3
    )


def evaluated_raw(package: Path, pixels: Array) -> Array:
    """The program's own answer, our manifest aside."""
    from onnxport.formats.mlpackage.reader import read_package
    from onnxport.runtimes.mlprogram.evaluator import Evaluator

    found = Evaluator(read_package(package).functions["main"]).run(
        {"x": pixels.astype(np.float32)}, {}, keep=[]
    )
    return np.asarray(found["scores"])


def test_the_description_of_an_image_is_what_coremltools_writes(tmp_path: Path) -> None:
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Function, Placeholder, Program, get_new_symbol

    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = model_of(nodes, {"x": X}, open_dims={"x": (1, 3, "H", "W")})
    convert(model, tmp_path / "m.mlpackage", image=["x=scale:0.5"], shape=["x=1,3,8..32,16..64"])
    with Function(
        {"x": Placeholder((1, 3, get_new_symbol(), get_new_symbol()))}, opset_version=ct.target.iOS17
    ) as f:
        f.set_outputs([mb.relu(x=f.inputs["x"], name="y")])
    program = Program()
    program.add_function("main", f)
    shape = ct.Shape((1, 3, ct.RangeDim(8, 32, default=8), ct.RangeDim(16, 64, default=16)))
    theirs = ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS17,
        inputs=[ct.ImageType("x", shape=shape, scale=0.5)],
    ).get_spec()
    assert list(spec_of(tmp_path / "m.mlpackage").description.input) == list(theirs.description.input)


@pytest.mark.parametrize(
    ("model", "image", "said"),
    [
        (lambda: classifier(), "y=layout:RGB", "no input 'y'; its inputs are 'x'"),
        (lambda: classifier(), "x=layout:GRAYSCALE", "not an image of GRAYSCALE"),
        (lambda: classifier(), "x=bias:1:2", "2 biases are given for the 3 channels"),
        (lambda: classifier("N"), "x=layout:RGB", "a batch of images.*--shape 'x=1,3"),
        (
            lambda: model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": X[0]}),
            "x=layout:RGB",
            "is not an image.*four dimensions",
        ),
    ],
)
def test_images_that_are_none_are_wrong_usage(model: Any, image: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        convert(model(), tmp_path / "m.mlpackage", image=[image])


def test_image_settings_are_read_as_written() -> None:
    assert parse_images(["a=b:0=scale:1/255,bias:-1:-2:-3.5,layout:bgr"]) == {
        "a=b:0": ImageInput("BGR", (1 / 255,), (-1.0, -2.0, -3.5))
    }
    assert parse_images({"x": {"scale": 2}}) == {"x": ImageInput("RGB", (2.0,), (0.0,))}


@pytest.mark.parametrize(
    "text", ["x=scale", "x=size:3", "x=scale:0", "x=scale:1/0", "x=layout:CMYK", "x=bias:nan"]
)
def test_malformed_image_settings_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_images([text])


def label_file(folder: Path, labels: list[str]) -> Path:
    file = folder / "labels.txt"
    file.write_text("\n".join(labels) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_labels_make_a_classifier(tmp_path: Path, precision: str) -> None:
    model, package = classifier(), tmp_path / "m.mlpackage"
    convert(model, package, labels=label_file(tmp_path, LABELS), precision=precision)
    description = spec_of(package).description
    assert description.predictedFeatureName == "classLabel"
    assert description.predictedProbabilitiesName == "classLabel_probs"
    kinds = {output.name: output.type.WhichOneof("Type") for output in description.output}
    assert kinds == {"classLabel": "stringType", "classLabel_probs": "dictionaryType"}
    wanted = run_onnx(model, {"x": X})["scores"]
    np.testing.assert_allclose(
        evaluate(package, {"x": X})["scores"], wanted, atol=2e-3 if precision == "fp16" else 1e-6
    )


def test_labels_of_another_count_name_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"5 labels.*has 4 numbers"):
        convert(classifier(), tmp_path / "m.mlpackage", labels=label_file(tmp_path, [*LABELS, "pig"]))


def test_labels_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"open dimensions.*--shape"):
        convert(classifier("N"), tmp_path / "a.mlpackage", labels=label_file(tmp_path, LABELS))
    with pytest.raises(UsageError, match="'cat' twice"):
        convert(
            classifier(), tmp_path / "b.mlpackage", labels=label_file(tmp_path, ["cat", "dog", "cat", "cow"])
        )
    with pytest.raises(InputError, match="cannot be read"):
        convert(classifier(), tmp_path / "c.mlpackage", labels=tmp_path / "none.txt")


def test_metadata_are_read_back(tmp_path: Path) -> None:
    convert(
        classifier(),
        tmp_path / "m.mlpackage",
        author="A. Uthor",
        license="Apache-2.0",
        model_version="1.2",
        description="Tells animals apart.",
        metadata=["team=vision", "source=https://example.org/?id=7"],
        compute_units="cpuAndNeuralEngine",
    )
    found = spec_of(tmp_path / "m.mlpackage").description.metadata
    assert (found.author, found.license, found.versionString) == ("A. Uthor", "Apache-2.0", "1.2")
    assert found.shortDescription == "Tells animals apart."
    assert found.userDefined["team"] == "vision"
    assert found.userDefined["source"] == "https://example.org/?id=7"
    assert found.userDefined["onnxport.compute-units"] == "cpuAndNeuralEngine"


def dense() -> Model:
    weight = numpy_helper.from_array(RANDOM.normal(size=(128, 128)).astype(np.float32), "w")
    x = RANDOM.normal(size=(4, 128)).astype(np.float32)
    return model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, [weight])


@pytest.mark.parametrize(
    ("weights", "target", "op", "share", "error"),
    [
        ("int8", "iOS17", "constexpr_affine_dequantize", 0.3, 0.02),
        ("int8", "iOS18", "constexpr_blockwise_shift_scale", 0.3, 0.02),
        ("int4", "iOS18", "constexpr_blockwise_shift_scale", 0.2, 0.2),
        ("palette4", "iOS17", "constexpr_lut_to_dense", 0.2, 0.2),
        ("palette6", "iOS18", "constexpr_lut_to_dense", 0.3, 0.1),
        ("sparse50", "iOS17", "constexpr_sparse_to_dense", 0.6, 0.5),
    ],
)
def test_weights_are_stored_in_fewer_bits(
    weights: str, target: str, op: str, share: float, error: float, tmp_path: Path
) -> None:
    model, package = dense(), tmp_path / "m.mlpackage"
    compiled = convert(model, package, weights=weights, minimum_target=target)
    assert op in compiled.operators
    stored = (package / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert stored < share * 128 * 128 * 4
    feeds: dict[str, Array] = {"x": RANDOM.normal(size=(4, 128)).astype(np.float32)}
    wanted = run_onnx(model, feeds)["y"]
    assert np.linalg.norm(evaluate(package, feeds)["y"] - wanted) < error * np.linalg.norm(wanted)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("bits", [1, 4, 8])
def test_palettes_are_as_good_as_scikit_learns(bits: int, precision: str, tmp_path: Path) -> None:
    from sklearn.cluster import KMeans

    model, package = dense(), tmp_path / "m.mlpackage"
    convert(model, package, weights=f"palette{bits}", precision=precision)
    weight = model.graph.initializers["w"].const_value.numpy().astype(np.float64)  # type: ignore[union-attr]
    eye = np.eye(128, dtype=np.float32)
    found = np.concatenate([evaluate(package, {"x": eye[i : i + 4]})["y"] for i in range(0, 128, 4)])
    assert len(np.unique(found)) <= 2**bits
    theirs = KMeans(2**bits, n_init=1, random_state=0).fit(weight.reshape(-1, 1)).inertia_
    assert ((found - weight) ** 2).sum() < 1.05 * theirs


def test_palettes_take_no_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    assert (
        "constexpr_lut_to_dense" in convert(dense(), tmp_path / "m.mlpackage", weights="palette4").operators
    )


@pytest.mark.parametrize(
    ("weights", "target", "since"), [("int4", "iOS17", "iOS18"), ("int8", "iOS15", "iOS16")]
)
def test_weights_that_a_target_does_not_have_are_wrong_usage(
    weights: str, target: str, since: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"{target} does not support.*{since}"):
        convert(dense(), tmp_path / "m.mlpackage", weights=weights, minimum_target=target)
