"""The formats that the campaign changes: valid files of each, and the commands that read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from tests.cli.sandbox import DIGITS, ROOT

SAMPLES: dict[str, Callable[[Path], None]] = {}
_IMAGE = "image=float32:N,1,8,8"
PIPELINE = """\
version: 1
model: digits.onnx
validate: {samples: 2, seed: 7}
stages:
  lean: {use: optimize}
  small: &small {use: quantize, from: lean, precision: dynamic}
targets:
  server: {to: ort, from: lean, matrix: {level: [basic, all]}}
  plain: {to: onnx, from: small, max_size: 1MB}
  phone: {to: tflite, shape: {image: "1,1,8,8"}}
reports: [out/report.html, out/report.md]
"""
SETTINGS = """\
resize: 10
crop: 8x8
layout: nchw
scale: 1/255
mean: [0.485, 0.456, 0.406]
std: 0.25
interpolation: bicubic
"""


@dataclass(frozen=True)
class Subject:
    """A format.

    Attributes:
        make: writes valid files into a folder.
        targets: a file that is changed -> its syntax (mutation.py).
        commands: read the changed file, `{}`; the first is the usual one, one run in RARE takes another.
        seconds: limit of a run; reading a file of kilobytes takes far less.
        in_child: whether the command reads it in a child process, whose crash or hang it reports.
        needs: the library without which there is nothing to test.
        imports: modules that forks share; without them, they share what the first command leaves.
    """

    make: Callable[[Path], None]
    targets: Mapping[str, str]
    commands: Sequence[Sequence[str]]
    seconds: float = 20.0
    in_child: bool = False
    needs: str = ""
    imports: Sequence[str] = ()


RARE = 25


# ---- models


def _onnx(folder: Path) -> None:
    shutil.copy(DIGITS, folder / "digits.onnx")
    onnx.save(control_flow(), folder / "control.onnx")
    onnx.save(various(), folder / "various.onnx")


def control_flow() -> onnx.ModelProto:
    """A Loop with an If in it, a model-local function, strings and a doc string; `x` [N, 4] to `y` [N, 4]."""
    bool_, int64, float_ = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT
    value = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph([helper.make_node(op, ["v"], ["b"])], name, [], [value("b", float_, None)])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("If", ["go"], ["w"], "choice", **branches),
        ],
        "body",
        [value("i", int64, []), value("go", bool_, []), value("v", float_, None)],
        [value("on", bool_, []), value("w", float_, None)],
    )
    steps = numpy_helper.from_array(np.array(3), "steps")
    nodes = [
        helper.make_node("Loop", ["steps", "", "x"], ["looped"], "loop", body=body),
        helper.make_node("Scaled", ["looped"], ["y"], "call", domain="own", factor=2.0),
    ]
    factor = onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="factor")
    constant = helper.make_node("Constant", [], ["f"])
    constant.attribute.append(factor)
    function = helper.make_function(
        "own",
        "Scaled",
        ["a"],
        ["b"],
        [constant, helper.make_node("Mul", ["a", "f"], ["b"])],
        [helper.make_opsetid("", 18)],
        ["factor"],
    )
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", float_, ["N", 4])],
        [value("y", float_, ["N", 4])],
        [steps],
        "a doc string",
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function])
    helper.set_model_props(model, {"author": "nobody", "onnxport": "{}"})
    return model


def various() -> onnx.ModelProto:
    """Quantized weights, strings, a sequence, trees, and an operator of another domain."""
    value, float_ = helper.make_tensor_value_info, TensorProto.FLOAT
    weights = {
        "s": np.array(0.1, np.float32),
        "z": np.array(3, np.uint8),
        "q": np.arange(4, dtype=np.uint8),
        "shape": np.array([-1, 2, 2]),
        "words": np.array([b"a", b"b"]),
    }
    trees: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        helper.make_node("Add", ["x", "d"], ["a"]),
        helper.make_node("Add", ["a", "c"], ["e"]),
        helper.make_node("Reshape", ["e", "shape"], ["r"]),
        helper.make_node("SplitToSequence", ["r"], ["parts"], axis=1),
        helper.make_node("ConcatFromSequence", ["parts"], ["t"], axis=1),
        helper.make_node("TreeEnsembleRegressor", ["e"], ["score"], domain="ai.onnx.ml", **trees),
        helper.make_node("Gelu", ["t"], ["y"], domain="com.microsoft"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", float_, ["N", 4])],
        [value("y", float_, ["N", 2, 2]), value("score", float_, ["N", 1])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name != "words"],
    )
    graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"]))
    opsets = [helper.make_opsetid(*each) for each in (("", 18), ("ai.onnx.ml", 3), ("com.microsoft", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _external(folder: Path) -> None:
    graphs.external_data(folder)


def _ort(folder: Path) -> None:
    import onnxruntime

    for name, model in (("digits", onnx.load(DIGITS)), ("control", control_flow()), ("mlp", graphs.mlp())):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(folder / f"{name}.ort")
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(model.SerializeToString(), options)


def _noted(folder: Path) -> None:
    """A made `.onnx` file, whose metadata has our manifest, and its attestation."""
    shutil.copy(DIGITS, folder)
    command = ("optimize", "digits.onnx", "--attest", "-o", "made.onnx")
    subprocess.run(
        [sys.executable, "-P", "-m", "onnxport", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )


def _labelled(folder: Path) -> None:
    """A `.tflite` file with metadata, and with label files in an archive behind the model."""
    from onnxport import convert_model

    (folder / "labels.txt").write_text("\n".join(f"digit {number}" for number in range(10)))
    shutil.copy(DIGITS, folder)
    convert_model(
        folder / "digits.onnx",
        "tflite",
        output=folder / "labelled.tflite",
        labels={"logits": folder / "labels.txt"},
        validate=False,
    )


def _converted(target: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from onnxport import convert_model

        suffix = {"tflite": ".tflite", "coreml": ".mlpackage"}[target]
        models = {"digits": onnx.load(DIGITS), "mlp": graphs.mlp()}
        for name, model in models.items():
            onnx.save(model, folder / f"{name}.onnx")
            convert_model(folder / f"{name}.onnx", target, output=folder / f"{name}{suffix}", validate=False)
            (folder / f"{name}.onnx").unlink()

    return make


# ---- samples


def _arrays(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        images = np.load(DIGITS.with_name("test.npz"))["image"][:3].astype(np.float32)
        (folder / "in").mkdir()
        if kind == "npz":
            np.savez(folder / "in" / "a.npz", image=images[:1])
            np.savez_compressed(folder / "in" / "b.npz", image=images[:1], other=np.arange(4))
        elif kind == "npy":
            np.save(folder / "in" / "a.npy", images[:1])
        elif kind == "safetensors":
            from safetensors.numpy import save_file

            save_file({"image": images[:1], "b": np.ones(2, np.float16)}, folder / "in" / "a.safetensors")
        elif kind == "csv":
            rows = ["sepal,petal,name"] + [f"{n}.5,{n},row {n}" for n in range(5)]
            (folder / "in" / "a.csv").write_text("\n".join(rows) + "\n")
        else:
            data_set = folder / "in" / "test_data_set_0"
            data_set.mkdir()
            tensor = numpy_helper.from_array(images[:1], "image")
            (data_set / "input_0.pb").write_bytes(tensor.SerializeToString())

    return make


def _images(folder: Path) -> None:
    from PIL import Image

    (folder / "in").mkdir()
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    for suffix in ("png", "jpg", "bmp", "webp", "tif", "gif", "ppm"):
        Image.fromarray(pixels).save(folder / "in" / f"a.{suffix}")
    frames = [Image.fromarray(pixels + number) for number in range(3)]
    frames[0].save(folder / "in" / "b.gif", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "in" / "b.webp", save_all=True, append_images=frames[1:])


def _settings(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "preprocess.yaml").write_text(SETTINGS)


def _wav(folder: Path) -> None:
    (folder / "in").mkdir()
    tone = (np.sin(np.arange(400) / 5) * 2**14).astype("<i2")
    with wave.open(str(folder / "in" / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(tone.tobytes())
    from scipy.io import wavfile

    wavfile.write(folder / "in" / "b.wav", 16000, tone.astype(np.float32) / 2**15)


# ---- texts of pipelines


def _pipeline(folder: Path) -> None:
    shutil.copy(DIGITS, folder)
    (folder / "pipeline.yaml").write_text(PIPELINE)


def _ran(folder: Path) -> None:
    """A pipeline that was run: its lock, and the entries of its cache."""
    from onnxport import run_pipeline

    shutil.copy(DIGITS, folder)
    text = "version: 1\nmodel: digits.onnx\ntargets:\n  server: {to: ort}\n"
    (folder / "pipeline.yaml").write_text(text)
    elsewhere = os.environ.pop("ONNXPORT_CACHE", None)
    try:
        run_pipeline(folder / "pipeline.yaml")
    finally:
        if elsewhere is not None:
            os.environ["ONNXPORT_CACHE"] = elsewhere


# ---- frameworks


def _keras(folder: Path) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(2)])
    model.save(folder / "a.keras")
    model.save(folder / "a.h5")


def _saved_model(folder: Path) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu")])
    model.export(folder / "saved", verbose=False)


def _skops(folder: Path) -> None:
    shutil.copy(ROOT / "fixtures" / "digits" / "linear.skops", folder)


def _table() -> tuple[np.ndarray, np.ndarray]:
    features = np.random.default_rng(0).normal(size=(60, 4))
    return features, (features[:, 0] > 0).astype(int)


def _boosters(folder: Path) -> None:
    import lightgbm
    import xgboost

    features, labels = _table()
    trees = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(features, labels)
    for suffix in ("json", "ubj"):
        trees.save_model(folder / f"x.{suffix}")
    lightgbm.LGBMClassifier(n_estimators=3, num_leaves=3, min_child_samples=2, verbose=-1).fit(
        features, labels
    ).booster_.save_model(folder / "l.txt")


def _catboost(folder: Path) -> None:
    import catboost

    model = catboost.CatBoostClassifier(
        iterations=3, depth=2, verbose=False, allow_writing_files=False, thread_count=1
    )
    model.fit(*_table()).save_model(str(folder / "c.cbm"))


def _torch(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    torch.export.save(torch.export.export(net, (torch.ones(1, 4),)), folder / "a.pt2")
    torch.save(net.state_dict(), folder / "a.pt")
    save_file(net.state_dict(), folder / "a.safetensors")
    torch.jit.save(torch.jit.script(net), folder / "script.pt")


def _frozen(folder: Path) -> None:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
        tf.nn.relu(tf.matmul(x, tf.constant(np.ones((4, 3), np.float32))), "y")
    (folder / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())


_READ = (":samples", "in", _IMAGE)
_LOAD = (":framework", "{}")
_TENSORFLOW = tuple(f"onnxport.exporters.tensorflow.{name}" for name in ("keras_files", "saved_models"))
_TORCH = ("onnxport.exporters.pytorch.loader", "torch._dynamo", "torch.onnx")
_BOOSTERS = tuple(f"onnxport.exporters.classical.boosters.{name}" for name in ("xgboost", "lightgbm"))
# Seconds after which a reader counts as endless, as some of boosters are: its child's limit ends it, with a sentence.
_ENDLESS = 1.0
_SKOPS = ("onnxport.exporters.objects", "skops.io", "sklearn.pipeline", "sklearn.linear_model")
SUBJECTS: Mapping[str, Subject] = {
    "onnx": Subject(
        _onnx,
        dict.fromkeys(("digits.onnx", "control.onnx", "various.onnx"), "protobuf"),
        (
            ("inspect", "{}"),
            ("inspect", "{}", "--json"),
            ("convert", "{}", "--to", "ort", "--no-validate", "-o", "out.ort"),
            ("convert", "{}", "--to", "tflite", "--no-validate", "-o", "out.tflite"),
            ("optimize", "{}", "-o", "out.onnx", "--timeout", "5"),
            ("inspect", "{}", "--runs-on", "all"),
        ),
        60.0,
    ),
    "external-data": Subject(
        _external,
        {"model.onnx": "protobuf", "model.onnx.data": "bytes"},
        (
            ("inspect", "model.onnx"),
            ("convert", "model.onnx", "--to", "ort", "--no-validate", "-o", "out.ort"),
            ("optimize", "model.onnx", "-o", "out.onnx", "--timeout", "5"),
        ),
        60.0,
    ),
    "ort": Subject(
        _ort,
        dict.fromkeys(("digits.ort", "control.ort", "mlp.ort"), "words"),
        (("inspect", "{}"), ("inspect", "{}", "--json"), ("validate", "{}", "{}", "--timeout", "5")),
        60.0,
    ),
    "tflite": Subject(
        _converted("tflite"),
        dict.fromkeys(("digits.tflite", "mlp.tflite"), "tflite"),
        (
            ("inspect", "{}"),
            ("inspect", "{}", "--json"),
            ("inspect", "{}", "--runs-on", "nnapi"),
            ("validate", "{}", "{}", "--timeout", "5"),
        ),
        60.0,
        needs="litert_converter",
    ),
    "tflite-labels": Subject(
        _labelled,
        {"labelled.tflite": "labels"},
        (("inspect", "{}"), ("inspect", "{}", "--json"), ("validate", "digits.onnx", "{}", "--timeout", "5")),
        60.0,
        needs="litert_converter",
    ),
    "manifest": Subject(
        _noted,
        {"made.onnx": "note"},
        (
            ("inspect", "{}"),
            ("inspect", "{}", "--json"),
            ("convert", "{}", "--to", "ort", "--no-validate", "-o", "out.ort"),
            ("validate", "digits.onnx", "{}", "--timeout", "5"),
        ),
        60.0,
    ),
    "attestation": Subject(
        _noted,
        {"made.onnx.intoto.json": "json"},
        (
            ("verify", "made.onnx", "--attestation", "{}"),
            ("verify", "made.onnx", "--attestation", "{}", "--json"),
        ),
    ),
    "mlpackage": Subject(
        _converted("coreml"),
        {
            "digits.mlpackage/Manifest.json": "json",
            "digits.mlpackage/Data/com.apple.CoreML/model.mlmodel": "protobuf",
            "digits.mlpackage/Data/com.apple.CoreML/weights/weight.bin": "words",
            "mlp.mlpackage/Data/com.apple.CoreML/model.mlmodel": "protobuf",
        },
        (("inspect", "{package}"), ("inspect", "{package}", "--json")),
        60.0,
        needs="coremltools",
    ),
    "npz": Subject(_arrays("npz"), dict.fromkeys(("in/a.npz", "in/b.npz"), "zip"), (_READ,)),
    "npy": Subject(_arrays("npy"), {"in/a.npy": "npy"}, (_READ,)),
    "safetensors": Subject(_arrays("safetensors"), {"in/a.safetensors": "bytes"}, (_READ,)),
    "data-set": Subject(_arrays("pb"), {"in/test_data_set_0/input_0.pb": "protobuf"}, (_READ,)),
    "csv": Subject(
        _arrays("csv"),
        {"in/a.csv": "lines"},
        ((":samples", "in", "sepal=float32:N,1", "petal=int64:N,1", "name=string:N,1"),),
    ),
    "images": Subject(
        _images,
        {
            "in/a.png": "png",
            **dict.fromkeys(("in/a.bmp", "in/a.tif", "in/a.webp", "in/b.webp", "in/a.ppm"), "words"),
            **dict.fromkeys(("in/a.jpg", "in/a.gif", "in/b.gif"), "bytes"),
        },
        (_READ,),
    ),
    "wav": Subject(
        _wav, dict.fromkeys(("in/a.wav", "in/b.wav"), "words"), ((":samples", "in", "x=float32:N"),)
    ),
    "yaml": Subject(_pipeline, {"pipeline.yaml": "yaml"}, (("plan", "pipeline.yaml"),)),
    "preprocess": Subject(_settings, {"in/preprocess.yaml": "yaml"}, ((":preprocessing", "in"),)),
    "lock": Subject(
        _ran,
        {"pipeline.lock": "lines"},
        (("verify", "build/digits/server.ort"), ("plan", "pipeline.yaml", "--frozen")),
    ),
    "cache": Subject(
        _ran, {".onnxport/stages/*/*/entry.json": "entry"}, (("cache", "list"), ("plan", "pipeline.yaml"))
    ),
    "keras": Subject(_keras, {"a.keras": "zip", "a.h5": "words"}, (_LOAD,), 20.0, True, "keras", _TENSORFLOW),
    "saved-model": Subject(
        _saved_model,
        {"saved/saved_model.pb": "protobuf", "saved/variables/variables.index": "bytes"},
        ((":framework", "saved"),),
        20.0,
        True,
        "tensorflow",
        _TENSORFLOW,
    ),
    "frozen-graph": Subject(
        _frozen, {"frozen.pb": "protobuf"}, (_LOAD,), 20.0, True, "tensorflow", _TENSORFLOW
    ),
    "skops": Subject(_skops, {"linear.skops": "zip"}, (_LOAD,), 20.0, True, "skops", _SKOPS),
    "xgboost": Subject(
        _boosters,
        {"x.json": "json", "x.ubj": "ubjson"},
        (_LOAD,),
        _ENDLESS,
        True,
        "lightgbm",
        _BOOSTERS,
    ),
    "lightgbm": Subject(_boosters, {"l.txt": "lines"}, (_LOAD,), _ENDLESS, True, "lightgbm", _BOOSTERS),
    "catboost": Subject(
        _catboost,
        {"c.cbm": "words"},
        (_LOAD,),
        _ENDLESS,
        True,
        "catboost",
        ("onnxport.exporters.classical.boosters.catboost",),
    ),
    "torch": Subject(_torch, {"a.pt2": "zip"}, (_LOAD,), 20.0, True, "torch", _TORCH),
    "torch-weights": Subject(
        _torch, {"a.pt": "zip", "a.safetensors": "bytes"}, ((":weights", "{}"),), 20.0, True, "torch", _TORCH
    ),
    "torchscript": Subject(
        _torch,
        {"script.pt": "zip"},
        ((":framework", "{}", "exporter=torchscript", "input=x=1,4"),),
        20.0,
        True,
        "torch",
        _TORCH,
    ),
}
