"""Every way in which `onnxport quantize` refuses: the sentence, the exit code, and nothing left behind."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox, unprivileged

CASES: dict[str, Case] = {}
case = registering(CASES)

INT8 = ("quantize", "model.onnx", "--int8", "--calib", "samples")
COUNT = 12


def samples(sandbox: Sandbox, dtype: str = "float32", shape: tuple[int, ...] = (1, 1, 8, 8)) -> Path:
    """A folder of sets that differ."""
    folder = sandbox.folder / "samples"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(COUNT):
        np.savez(folder / f"{number}.npz", image=random.random(shape).astype(dtype))
    return folder


def saved(
    sandbox: Sandbox, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], opset: int = 17
) -> None:
    """Puts a model of image[N, 1, 8, 8] in the place of model.onnx."""
    ends = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])]
    answer = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1, "H", "W"])]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ends, answer, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, sandbox.model)


# ---- the samples


@case(2, "--int8 needs samples of the model's inputs", "--calib DIR; without samples, --dynamic")
def no_samples(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("quantize", "model.onnx", "--int8")


@case(4, "the folder samples does not exist")
def folder_that_does_not_exist(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return INT8


@case(4, "samples holds no inputs: it is empty; put images, .npz")
def folder_of_nothing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "samples").mkdir()
    return INT8


@case(4, "samples holds no inputs: notes.txt cannot be read as inputs")
def folder_of_other_files(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "samples").mkdir()
    (sandbox.folder / "samples" / "notes.txt").write_text("to do: collect samples")
    return INT8


@case(4, "notes.txt cannot be read as inputs; give images, .npz")
def file_of_another_kind(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "notes.txt").write_text("to do: collect samples")
    return (*INT8[:-1], "notes.txt")


@case(4, "'image' in samples/0.npz is float64: the model takes float32; save it as float32")
def samples_of_another_dtype(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox, "float64")
    return INT8


@case(4, "'image' in samples/7.npz has shape [1, 3, 8, 8]: the model takes image: float32[N, 1, 8, 8]")
def one_sample_of_another_shape(sandbox: Sandbox) -> tuple[str | Path, ...]:
    np.savez(samples(sandbox) / "7.npz", image=np.ones((1, 3, 8, 8), np.float32))
    return INT8


@case(4, "samples/3.npz lacks the input 'image': it has 'picture'")
def sample_of_another_key(sandbox: Sandbox) -> tuple[str | Path, ...]:
    np.savez(samples(sandbox) / "3.npz", picture=np.ones((1, 1, 8, 8), np.float32))
    return INT8


@case(4, "'image'", "5.npz", "NaN")
def sample_with_nan(sandbox: Sandbox) -> tuple[str | Path, ...]:
    image = np.ones((1, 1, 8, 8), np.float32)
    image[0, 0, 3, 3] = np.nan
    np.savez(samples(sandbox) / "5.npz", image=image)
    return INT8


@case(4, "'image'", "5.npz", "infinit")
def sample_with_an_infinity(sandbox: Sandbox) -> tuple[str | Path, ...]:
    np.savez(samples(sandbox) / "5.npz", image=np.full((1, 1, 8, 8), np.inf, np.float32))
    return INT8


@case(4, "'large'", "5.npz", "infinit", "--exclude")
def activation_that_overflows_on_one_sample(sandbox: Sandbox) -> tuple[str | Path, ...]:
    nodes = [
        helper.make_node("Exp", ["image"], ["large"], "exp"),
        helper.make_node("Conv", ["large", "w"], ["y"], "conv"),
    ]
    saved(sandbox, nodes, {"w": np.ones((1, 1, 3, 3), np.float32)})
    np.savez(samples(sandbox) / "5.npz", image=np.full((1, 1, 8, 8), 1000, np.float32))
    return INT8


@case(2, "the samples in samples look wrong", "1 of 12 samples ", "4.npz", "leave --strict out")
def samples_that_repeat_with_strict(sandbox: Sandbox) -> tuple[str | Path, ...]:
    folder = samples(sandbox)
    (folder / "4.npz").write_bytes((folder / "2.npz").read_bytes())
    return (*INT8, "--strict")


@case(4, "0.png", "cannot be read")
def images_that_are_damaged(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "samples").mkdir()
    (sandbox.folder / "samples" / "0.png").write_bytes(b"\x89PNG and no more")
    return INT8


@case(2, "--preprocess applies to images and audio, and samples has none; leave it out")
def preprocessing_of_arrays(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "--preprocess", "scale=1/255")


@case(2, "--preprocess has no setting 'rezise'", "the settings are resize")
def preprocessing_misspelled(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "--preprocess", "rezise=8")


# ---- the model


@case(3, "model.onnx is quantized already", "DequantizeLinear", "give the float model")
def model_that_is_quantized_already(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    made = sandbox.run(*INT8, "-o", "once.onnx", "--no-validate")
    assert made.code == 0, made.stderr
    (sandbox.folder / "once.onnx").replace(sandbox.model)
    return INT8


@case(3, "nothing in model.onnx can be quantized", "Abs", "'abs'")
def model_without_products(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    saved(sandbox, [helper.make_node("Abs", ["image"], ["y"], "abs")], {})
    return INT8


@case(4, "model.onnx is not an ONNX model")
def model_that_is_none(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    sandbox.model.write_bytes(b"no model" * 100)
    return INT8


@case(4, "model.ort is in ort format", "give a .onnx file")
def model_of_another_format(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    (sandbox.folder / "model.ort").write_bytes(b"anything")
    return ("quantize", "model.ort", "--int8", "--calib", "samples")


# ---- options


@case(2, "no precision is given", "give one of --int8, --int16x8, --dynamic, --fp16")
def no_precision(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("quantize", "model.onnx")


@case(2, "--int8 and --dynamic exclude each other")
def two_precisions(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("quantize", "model.onnx", "--int8", "--dynamic")


@case(2, "--calib has no effect with --dynamic; leave it out")
def samples_where_none_are_needed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return ("quantize", "model.onnx", "--dynamic", "--calib", "samples")


@case(2, "--method has no effect with --fp16; leave it out: it is for --int8 and --int16x8")
def method_where_no_range_is_sought(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("quantize", "model.onnx", "--fp16", "--method", "entropy")


@case(2, "--no-bias-correction has no effect with --int4-weights")
def bias_correction_of_weights_alone(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("quantize", "model.onnx", "--int4-weights", "--no-bias-correction")


@case(2, "--jobs: 0 is not allowed; give 1 to 256")
def no_processes(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*INT8, "--jobs", "0")


@case(2, "--calib-samples: 0 is not allowed; give 1 or more")
def no_samples_wanted(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*INT8, "--calib-samples", "0")


@case(2, "'--method'", "'auto', 'minmax', 'percentile', 'mse', 'entropy'")
def method_that_there_is_none(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*INT8, "--method", "kl")


@case(2, "--memory-limit: plenty is not allowed; give a size such as 500MB or 2GB")
def memory_that_is_no_size(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return (*INT8, "--memory-limit", "plenty")


@case(2, "--budget needs the proof, which --no-validate leaves out")
def budget_without_a_proof(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "--no-validate", "--budget", "sqnr=20")


@case(2, "convv", "conv1")
def exclusion_that_names_nothing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "--exclude", "convv")


# ---- the output


@case(2, "the output model.onnx is the input; give another path")
def output_that_is_the_input(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "-o", "model.onnx")


@case(2, "does not exist", "mkdir -p app")
def output_in_a_folder_that_is_missing(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "-o", "app/small.onnx")


@case(2, "small.tflite does not end in .onnx")
def output_of_another_format(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return (*INT8, "-o", "small.tflite")


@case(6, "Permission denied", before_exec=unprivileged)
def output_in_a_folder_that_is_read_only(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    (sandbox.folder / "locked").mkdir(mode=0o500)
    return (*INT8, "-o", "locked/small.onnx")


def file_size_limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))


@case(6, "model_int8.onnx cannot be written", before_exec=file_size_limited)
def disk_that_is_full(sandbox: Sandbox) -> tuple[str | Path, ...]:
    samples(sandbox)
    return INT8


@pytest.mark.parametrize("name", CASES)
def test_refusal_names_the_cause_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)
