"""What TensorFlow and Keras models become: the same answers, the names and open dimensions that the user knows."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from fixtures import models
from onnxport.core.errors import CannotConvertError, InputError, OnnxportError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import Host
from onnxport.exporters.sources import Source

NETS = "tests.exporters.keras_nets"
RANDOM = np.random.default_rng(7)
IMAGES = RANDOM.uniform(0, 255, (3, 32, 32, 3)).astype(np.float32)
TOKENS = RANDOM.integers(1, 50, (2, 7)).astype(np.int32)
ROOT = Path(__file__).parents[2]


def exported(source: str, folder: Path, **options: Any) -> tuple[Host, onnx.ModelProto, Any]:
    """The model in this process, the file that it becomes, and ONNX Runtime on it."""
    host, params = Host(), ExportParams(**options)
    host.open(Source.of(source, params.weights), params)
    file = folder / "exported.onnx"
    host.export(file, None)
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    return host, model, onnxruntime.InferenceSession(file)


def answers(session: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def shapes(ports: Any) -> dict[str, list[Any]]:
    return {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in ports
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CNN in every form that there is, and `expected.npz`, what Keras answers."""
    folder = tmp_path_factory.mktemp("saved")
    import tensorflow as tf

    from tests.exporters import keras_nets

    model = keras_nets.cnn()
    for layer in model.layers:  # statistics that a trained model has
        if layer.name.startswith("batch_norm"):
            layer.moving_mean.assign(tf.linspace(-0.5, 0.5, 8))
            layer.moving_variance.assign(tf.linspace(0.5, 2.0, 8))
    model.save(folder / "cnn.keras")
    model.save(folder / "cnn.h5")
    model.save_weights(folder / "cnn.weights.h5")
    call = tf.function(lambda image: dict(model(image, training=False)))
    signature = call.get_concrete_function(tf.TensorSpec((None, 32, 32, 3), name="image"))
    flipped = tf.function(lambda image: {"scores": model(image[:, :, ::-1])["scores"]})
    mirror = flipped.get_concrete_function(tf.TensorSpec((None, 32, 32, 3), name="image"))
    tf.saved_model.save(
        model, str(folder / "cnn"), signatures={"serving_default": signature, "mirror": mirror}
    )
    (folder / "cnn.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(signature)
    (folder / "cnn.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    expected = {name: np.asarray(value) for name, value in model(IMAGES, training=False).items()}
    mirrored = np.asarray(model(IMAGES[:, :, ::-1])["scores"])
    np.savez(folder / "expected.npz", **expected, mirrored=mirrored)
    return folder


@pytest.mark.parametrize("form", ["cnn.keras", "cnn.h5", "cnn", "cnn.tflite"])
def test_every_form_of_a_model_answers_as_keras_does(form: str, saved: Path, tmp_path: Path) -> None:
    expected = np.load(saved / "expected.npz")
    _, model, session = exported(str(saved / form), tmp_path)
    assert shapes(model.graph.input) == {"image": ["batch", 32, 32, 3]}
    assert {name: dims[1] for name, dims in shapes(model.graph.output).items()} == {
        "scores": 10,
        "embedding": 12,
    }
    for name, value in answers(session, {"image": IMAGES}).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)


def test_another_signature_of_a_saved_model_is_another_model(saved: Path, tmp_path: Path) -> None:
    _, _, session = exported(str(saved / "cnn"), tmp_path, signature="mirror")
    expected = np.load(saved / "expected.npz")["mirrored"]
    np.testing.assert_allclose(answers(session, {"image": IMAGES})["scores"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="--signature takes one of serving_default, mirror"):
        exported(str(saved / "cnn"), tmp_path, signature="serving")


def test_a_frozen_graph_is_cut_where_the_user_says(saved: Path, tmp_path: Path) -> None:
    file, expected = str(saved / "cnn.pb"), np.load(saved / "expected.npz")
    with pytest.raises(UsageError, match=r"2 nodes that nothing reads.*--output-names: Identity, Identity_1"):
        exported(file, tmp_path)
    _, model, session = exported(
        file, tmp_path, input="image=3,32,32,3", output_names=("Identity", "Identity_1")
    )
    assert shapes(model.graph.input) == {"image": [3, 32, 32, 3]}
    by_width = {value.shape[1]: value for value in answers(session, {"image": IMAGES}).values()}
    np.testing.assert_allclose(by_width[10], expected["scores"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_width[12], expected["embedding"], rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match=r"no tensor 'Identty'.*Identity"):
        exported(file, tmp_path, output_names=("Identty",))


def test_weights_are_put_into_what_a_factory_builds(saved: Path, tmp_path: Path) -> None:
    _, _, session = exported(f"{NETS}:cnn", tmp_path, weights=saved / "cnn.weights.h5")
    expected = np.load(saved / "expected.npz")["scores"]
    np.testing.assert_allclose(answers(session, {"image": IMAGES})["scores"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="does not fit"):
        exported(f"{NETS}:tagger", tmp_path, weights=saved / "cnn.weights.h5")


def test_a_subclassed_model_is_told_what_it_takes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its call is \(x.*--input"):
        exported(f"{NETS}:encoder", tmp_path)
    options: dict[str, Any] = {"input": "x=1,10,6", "dynamic": "x=batch,time,_", "arg": "width=4"}
    host, model, session = exported(f"{NETS}:encoder", tmp_path, **options)
    assert shapes(model.graph.input) == {"x": ["batch", "time", 6]}
    for size in ((1, 10, 6), (3, 4, 6)):
        feeds = {"x": RANDOM.standard_normal(size).astype(np.float32)}
        expected = host.run(feeds, other_kernels=False)["output"]
        assert expected.shape == (*size[:2], 4)
        np.testing.assert_allclose(answers(session, feeds)["output"], expected, rtol=1e-4, atol=1e-5)


def test_a_table_and_text_come_along(tmp_path: Path) -> None:
    _, _, session = exported(f"{NETS}:lookup", tmp_path)
    words = np.array(["b", "a", "c"], dtype=object)
    assert answers(session, {"words": words})["number"].tolist() == [2, 1, -1]


def test_a_function_without_a_signature_takes_its_parameters_by_name(tmp_path: Path) -> None:
    options: dict[str, Any] = {"input": ["b=5,3", "a=2,3"], "dynamic": ["a=n,_", "b=m,_"]}
    _, _, session = exported(f"{NETS}:distances", tmp_path, **options)
    a, b = (
        RANDOM.standard_normal((4, 3)).astype(np.float32),
        RANDOM.standard_normal((6, 3)).astype(np.float32),
    )
    expected = np.linalg.norm(a[:, None] - b[None], axis=-1)
    np.testing.assert_allclose(answers(session, {"a": a, "b": b})["distance"], expected, rtol=1e-5)


def test_every_operator_without_a_form_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotConvertError) as raised:
        exported(f"{NETS}:unsupported", tmp_path)
    assert {refusal.op for refusal in raised.value.refusals} == {"Svd", "Cholesky"}


def test_code_and_unknown_layers_in_a_file_are_refused(saved: Path, tmp_path: Path) -> None:
    import keras

    class Own(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x * 3

    image = keras.Input((4,))
    keras.Model(image, keras.layers.Lambda(lambda x: x * 2, name="twice")(image)).save(
        tmp_path / "code.keras"
    )
    keras.Sequential([image, Own()]).save(tmp_path / "own.keras")
    (tmp_path / "half.keras").write_bytes((saved / "cnn.keras").read_bytes()[:900])
    (tmp_path / "junk.pb").write_bytes(b"\x00\xff junk" * 9)
    for name, said in {
        "code.keras": "holds Python code.*--trust",
        "own.keras": "needs Own, which Keras does not have.*factory",
        "half.keras": "damaged or no Keras file",
        "junk.pb": "damaged or not a TensorFlow graph",
    }.items():
        with pytest.raises(InputError, match=said):
            exported(str(tmp_path / name), tmp_path)
    with pytest.raises(InputError, match=r"weights without a model.*--weights"):
        exported(str(saved / "cnn.weights.h5"), tmp_path)
    _, _, session = exported(str(tmp_path / "code.keras"), tmp_path, trust=True)
    (doubled,) = answers(session, {session.get_inputs()[0].name: np.ones((1, 4), np.float32)}).values()
    assert (doubled == 2).all()


def test_dimensions_that_contradict_the_model_are_refused(saved: Path, tmp_path: Path) -> None:
    file = str(saved / "cnn.keras")
    for options, said in (
        ({"dynamic": "image=_,h,w,_"}, "dimension 0 of input 'image' has no size|cannot stay open as 'h'"),
        ({"input": "image=1,64,64,3"}, "is 32 in the model, not 64"),
        ({"input": "picture=1,32,32,3"}, "has no input 'picture'"),
        ({"input": "image=1,32,32,3:int8"}, "is float32 in the model, not int8"),
        ({"input": "image=1,32,32"}, "3 dimensions for input 'image', which has 4"),
        ({"output_names": ("one",)}, "gives 2 outputs"),
    ):
        with pytest.raises(OnnxportError, match=said):
            exported(file, tmp_path, **options)


def test_an_open_length_is_proven_by_the_command(tmp_path: Path) -> None:
    """In a fresh process, with the log of TensorFlow kept from the user."""
    run = command(f"{NETS}:tagger", tmp_path / "tagger.onnx", "--dynamic", "tokens=batch,length")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "proven" in run.stdout
    assert "0000" not in run.stderr
    assert shapes(onnx.load(tmp_path / "tagger.onnx").graph.input) == {"tokens": ["batch", "length"]}


def command(source: str, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "onnxport", "export", source, "-o", str(output), *options]
    return subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.exhaustive
@pytest.mark.real
@pytest.mark.parametrize("key", ["basic-pitch/nmp", "basic-pitch/nmp.tflite"])
def test_basic_pitch_is_what_its_authors_exported(key: str, tmp_path: Path) -> None:
    """The same network as ONNX file, made by its authors, answers alike: neither TensorFlow nor tf2onnx judges."""
    source = models.folder(key) if key == "basic-pitch/nmp" else models.path(key)
    run = command(str(source), tmp_path / "nmp.onnx", "--report", str(tmp_path / "report.json"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 0
    feed = RANDOM.uniform(-1, 1, (2, 43844, 1)).astype(np.float32)
    theirs = onnxruntime.InferenceSession(models.path("basic-pitch/nmp.onnx"))
    ours = onnxruntime.InferenceSession(tmp_path / "nmp.onnx")
    expected = theirs.run(None, {theirs.get_inputs()[0].name: feed})
    found = ours.run(None, {ours.get_inputs()[0].name: feed})
    for value in found:
        nearest = min(np.abs(value - other).max() for other in expected if other.shape == value.shape)
        assert nearest < 1e-4


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["cnn.keras", "cnn.h5", "cnn", "cnn.tflite"])
def test_every_form_is_proven_by_the_command(form: str, saved: Path, tmp_path: Path) -> None:
    before = digest(saved / form)
    run = command(str(saved / form), tmp_path / "out.onnx")
    assert run.returncode == 0, run.stdout + run.stderr
    assert digest(saved / form) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", ["tagger", "cnn.tflite", "cnn"])
def test_the_same_model_gives_the_same_bytes(source: str, saved: Path, tmp_path: Path) -> None:
    digests = set()
    for n in (1, 2):
        file = tmp_path / f"{n}" / "out.onnx"
        file.parent.mkdir()
        given = str(saved / source) if source.startswith("cnn") else f"{NETS}:{source}"
        run = command(given, file, "--no-validate")
        assert run.returncode == 0, run.stdout + run.stderr
        digests.add(digest(file))
    assert len(digests) == 1


@pytest.mark.exhaustive
def test_a_subclassed_model_is_proven_by_the_command(tmp_path: Path) -> None:
    options = ["--input", "x=1,10,6", "--dynamic", "x=batch,time,_"]
    run = command(f"{NETS}:encoder", tmp_path / "out.onnx", *options)
    assert run.returncode == 0, run.stdout + run.stderr


def digest(path: Path) -> str:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def test_a_tflite_with_variables_is_refused_with_a_way_out(tmp_path: Path) -> None:
    import tensorflow as tf

    class Counting(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.state = tf.Variable(tf.zeros([2]))

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])  # type: ignore[untyped-decorator]
        def count(self, x: Any) -> Any:
            return self.state.assign_add(x)

    module = Counting()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.count.get_concrete_function()], module
    )
    converter.experimental_enable_resource_variables = True
    path = tmp_path / "counting.tflite"
    path.write_bytes(converter.convert())
    with pytest.raises(CannotConvertError, match="VAR_HANDLE nodes keep a state") as refused:
        exported(str(path), tmp_path)
    assert "export the model that this file was made from" in str(refused.value)
