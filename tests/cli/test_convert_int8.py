"""`onnxport convert --precision int8 --calib DIR`: quantized on the way to every target, with two verdicts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxport
from fixtures import models
from onnxport.core.errors import UsageError
from onnxport.reports.run_report import RunReport
from onnxport.validate.translation.judgement import BUG
from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import DIGITS, Sandbox

SUFFIXES = {"tflite": ".tflite", "coreml": ".mlpackage", "ort": ".ort"}
CALIBRATED = ("--precision", "int8", "--calib", "samples")

CASES: dict[str, Case] = {}
case = registering(CASES)

# What a later process runs at its start: the second step is handed a model whose answers are 1.5 times too large.
WRONG_STEP = """
import numpy as np
import onnx_ir as ir
import onnxport.converters.ort as ort

right = ort.convert

def wrong(model, *others):
    copy = model.clone()
    last = copy.graph.outputs[0].producer()
    scale = ir.Value(name="wrong", const_value=ir.tensor(np.float32(1.5) * last.inputs[1].const_value.numpy()))
    copy.graph.register_initializer(scale)
    last.replace_input_with(1, scale)
    return right(copy, *others)

ort.convert = wrong
"""
# The quantization itself is: 4 times too large.
WRONG_QUANTIZATION = """
import numpy as np
import onnx_ir as ir
import onnxport.quantize.int8 as int8

right = int8.quantize

def wrong(*given):
    made = right(*given)
    last = made.model.graph.outputs[0].producer()
    scale = ir.Value(name="wrong", const_value=ir.tensor(np.float32(4) * last.inputs[1].const_value.numpy()))
    made.model.graph.register_initializer(scale)
    last.replace_input_with(1, scale)
    return made

int8.quantize = wrong
"""


def sampled(sandbox: Sandbox, count: int = 20) -> None:
    """Real digits in the sandbox's folder `samples`."""
    images = np.load(DIGITS.with_name("test.npz"))["image"]
    folder = sandbox.folder / "samples"
    folder.mkdir()
    for number in range(count):
        np.savez(folder / f"{number:02}.npz", image=images[number : number + 1])


def verdicts(report: Any) -> dict[str, tuple[str, str]]:
    """Question to the verdict and what was compared with."""
    return {each["question"]: (each["verdict"], each["against"]) for each in report["judgements"]}


@pytest.mark.parametrize(
    ("target", "precision"),
    [
        *((target, "int8") for target in SUFFIXES),
        ("tflite", "int16x8"),
        *(pytest.param(target, "int16x8", marks=pytest.mark.exhaustive) for target in ("coreml", "ort")),
    ],
)
def test_a_float_model_is_quantized_on_the_way(target: str, precision: str, sandbox: Sandbox) -> None:
    sampled(sandbox)
    asked = ("--precision", precision, "--calib", "samples", "--method", "minmax")
    outcome = sandbox.run("convert", "model.onnx", "--to", target, *asked, "--json")
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert verdicts(artifact["report"]) == {
        "fidelity": ("proven", "the quantized model that it was made from"),
        "quality": ("measured", "the float original"),
        "translation": ("proven", "the reference's nodes with quantization in them"),
    }
    assert not [note for note in artifact["report"]["notes"] if BUG in note]
    assert artifact["report"]["reference"]["path"] == "model.onnx"
    # Both questions are asked of the same samples, which calibration has not seen.
    assert [each["source"] for each in artifact["report"]["fed"]] == ["samples"] * 4
    assert artifact["ratio"] < 0.8
    shown = sandbox.run("inspect", f"model{SUFFIXES[target]}", "--json").document["manifest"]
    assert (
        shown["options"]["quantize"] | {"precision": precision, "method": "minmax"}
        == shown["options"]["quantize"]
    )
    assert shown["options"][target]["precision"] == precision
    assert "onnxruntime" in shown["made_by"]
    assert shown["source"] == outcome.document["source"]["digest"]
    companions = {"model.required_operators.config"} if target == "ort" else set()
    made = {path.name for path in sandbox.folder.iterdir()}
    assert made == {"model.onnx", "samples", f"model{SUFFIXES[target]}", *companions}
    assert not list(sandbox.temporary.iterdir())


@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_same_input_gives_the_same_bytes(target: str, sandbox: Sandbox) -> None:
    sampled(sandbox)
    made = []
    for name in ("first", "second"):
        output = sandbox.folder / f"{name}.{target}"
        assert sandbox.run("convert", "model.onnx", "--to", target, *CALIBRATED, "-o", output).code == 0
        made.append(output.read_bytes())
    assert made[0] == made[1]


def test_a_fault_of_the_second_step_is_no_loss_of_quality(sandbox: Sandbox) -> None:
    """SQNR is above its floor: who asked of quality alone would let it out."""
    sampled(sandbox)
    sandbox.patch(WRONG_STEP)
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", *CALIBRATED, "--json")
    assert outcome.code == 1
    (artifact,) = outcome.document["artifacts"]
    assert {question: verdict for question, (verdict, _) in verdicts(artifact["report"]).items()} == {
        "fidelity": "not equivalent",
        "quality": "measured",
        "translation": "not equivalent",
    }
    assert artifact["report"]["verdict"] == "not equivalent"
    assert not (sandbox.folder / "model.ort").exists()


def test_a_bad_quantization_is_no_fault_of_the_second_step(sandbox: Sandbox) -> None:
    sampled(sandbox)
    sandbox.patch(WRONG_QUANTIZATION)
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", *CALIBRATED, "--json")
    assert outcome.code == 1
    (artifact,) = outcome.document["artifacts"]
    assert {question: verdict for question, (verdict, _) in verdicts(artifact["report"]).items()} == {
        "fidelity": "proven",
        "quality": "over budget",
        "translation": "not equivalent",
    }
    assert not (sandbox.folder / "model.ort").exists()


def test_a_budget_is_held_against_the_float_original(sandbox: Sandbox) -> None:
    sampled(sandbox)
    within = sandbox.run("convert", "model.onnx", "--to", "tflite", *CALIBRATED, "--budget", "sqnr=15")
    assert within.code == 0, within.stderr
    assert "SQNR" in within.stdout
    beyond = sandbox.run("convert", "model.onnx", "--to", "ort", *CALIBRATED, "--budget", "sqnr=90")
    assert beyond.code == 1
    assert "loses more accuracy against model.onnx than the budget allows" in beyond.stderr


def test_a_quantized_model_goes_on_as_it_is(sandbox: Sandbox) -> None:
    sampled(sandbox)
    assert sandbox.run("quantize", "model.onnx", "--int8", "--calib", "samples").code == 0
    for target in SUFFIXES:
        output = ("-o", f"made{SUFFIXES[target]}")
        outcome = sandbox.run(
            "convert", "model_int8.onnx", "--to", target, "--precision", "int8", *output, "--json"
        )
        assert outcome.code == 0, outcome.stderr
        (artifact,) = outcome.document["artifacts"]
        assert verdicts(artifact["report"]) == {"fidelity": ("proven", "the reference itself")}


def test_integers_at_the_border_belong_to_the_second_step(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run("convert", "model.onnx", "--to", "tflite", *CALIBRATED, "--io", "int8", "--json")
    assert outcome.code == 0, outcome.stderr
    assert set(verdicts(outcome.document["artifacts"][0]["report"])) == {"fidelity", "quality", "translation"}


def test_unproven_is_said_of_both_steps(sandbox: Sandbox) -> None:
    sampled(sandbox)
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", *CALIBRATED, "--no-validate", "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.document["artifacts"][0]["report"]["verdict"] == "unproven"
    shown = sandbox.run("inspect", "model.ort", "--json").document["manifest"]
    assert shown["validation"] == "skipped"
    assert set(shown["options"]) == {"quantize", "ort"}


def test_python_says_it_in_keywords(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    sampled(sandbox)
    result = onnxport.convert_model(
        sandbox.model, "ort", precision="int8", calib=sandbox.folder / "samples", exclude="Gemm"
    )
    assert {each.question for each in result.report.judgements} == {"fidelity", "quality", "translation"}
    assert isinstance(result.run, RunReport)


def test_options_of_other_precisions_are_none_of_this_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="converting to ort has no option 'block'"):
        onnxport.convert_model(DIGITS, "ort", precision="int8", calib=tmp_path, block=32)


def _without_samples(target: str, sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", target, "--precision", "int8")


@case(2, "no integer scales for its activations", "--calib DIR", "int8-dynamic")
def int8_tflite_without_samples(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return _without_samples("tflite", sandbox)


@case(2, "no integer scales for its activations", "--calib DIR")
def int8_coreml_without_samples(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return _without_samples("coreml", sandbox)


@case(2, "no integer scales for its activations", "--calib DIR")
def int8_ort_without_samples(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return _without_samples("ort", sandbox)


@case(2, "--calib is for --precision int8", "--precision fp16 needs no samples")
def samples_for_a_precision_without(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sampled(sandbox)
    return ("convert", "model.onnx", "--to", "tflite", "--precision", "fp16", "--calib", "samples")


@case(2, "--calib is for --precision int8", "give --precision int8")
def samples_without_a_precision(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sampled(sandbox)
    return ("convert", "model.onnx", "--to", "tflite", "--calib", "samples")


@case(2, "--method is about quantization", "--calib DIR")
def quantizing_without_samples(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", "tflite", "--precision", "int8", "--method", "mse")


@case(2, "--calib quantizes one model", "onnxport quantize")
def samples_for_several_functions(sandbox: Sandbox) -> tuple[str | Path, ...]:
    sampled(sandbox)
    shutil.copy(sandbox.model, sandbox.folder / "other.onnx")
    further = ("--minimum-target", "iOS18", "--function", "other=other.onnx")
    return ("convert", "model.onnx", "--to", "coreml", *CALIBRATED, *further)


@case(4, "nowhere")
def samples_that_are_not_there(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("convert", "model.onnx", "--to", "ort", "--precision", "int8", "--calib", "nowhere")


@pytest.mark.parametrize("budget", [(), ("--budget", "sqnr=20")])
def test_a_step_that_fails_names_the_model_and_the_step_before_and_no_file_that_is_gone(
    budget: tuple[str, ...], sandbox: Sandbox
) -> None:
    """The product of `quantize` lies in the run's private folder, which is removed before anybody reads its name."""
    model = onnx.load(sandbox.model)
    scores = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Multinomial", [scores], ["drawn"], "draw", seed=1.0))
    model.graph.output.append(helper.make_tensor_value_info("drawn", onnx.TensorProto.INT32, ["batch", 1]))
    onnx.save(model, sandbox.folder / "my drawing.onnx")
    sampled(sandbox)
    outcome = sandbox.run("convert", "my drawing.onnx", "--to", "tflite", *CALIBRATED, *budget)
    assert outcome.code == 3
    assert "my drawing.onnx after step 'quantize' cannot be converted to TFLite" in outcome.stderr
    assert "Multinomial  'draw'" in outcome.stderr
    assert ".onnxport-" not in outcome.stderr


def far_samples(sandbox: Sandbox, draws: bool) -> None:
    """Samples of 60 times the spread that a BatchNormalization was trained on; `draws` adds what TFLite lacks."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[1, 3, 16, 16] x) => (float[1, 4] logits'
        + (", int32[1, 1] drawn" if draws else "")
        + """) { n = BatchNormalization (x, one, zero, zero, one) c = Conv <pads = [1, 1, 1, 1]> (n, w) r = Relu (c)
        m = GlobalAveragePool (r) f = Flatten (m) logits = Gemm (f, k)"""
        + ("drawn = Multinomial <seed = 1.0> (logits) }" if draws else "}")
    )
    weights = {
        "one": np.ones(3, np.float32),
        "zero": np.zeros(3, np.float32),
        "w": random.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "k": random.standard_normal((8, 4)).astype(np.float32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    onnx.save(model, sandbox.folder / "far.onnx")
    (sandbox.folder / "samples").mkdir()
    for number in range(10):
        x = 60 * random.standard_normal((1, 3, 16, 16)).astype(np.float32)
        np.savez(sandbox.folder / "samples" / f"{number}.npz", x=x)


@pytest.mark.parametrize(("draws", "to", "code"), [(True, "tflite", 3), (False, "ort", 1)])
def test_samples_that_look_wrong_are_the_first_advice_of_a_failure(
    draws: bool, to: str, code: int, sandbox: Sandbox
) -> None:
    far_samples(sandbox, draws)
    outcome = sandbox.run("convert", "far.onnx", "--to", to, *CALIBRATED, "--budget", "sqnr=90")
    assert outcome.code == code, outcome.stderr
    error = outcome.stderr[outcome.stderr.index("error: ") :]
    assert "the samples may be the cause: the input 'x' has values from" in error
    assert "times the spread of training; scale them as in training" in error
    assert "onnx2tf" not in error


def test_the_only_file_of_a_folder_is_told_as_the_one_to_give(sandbox: Sandbox) -> None:
    """In a folder each file is a sample; of a file that is named each row is one."""
    (sandbox.folder / "samples").mkdir()
    shutil.copy(DIGITS.with_name("test.npz"), sandbox.folder / "samples" / "rows.npz")
    command = ("quantize", "model.onnx", "--int8", "--no-latency", "--calib")
    outcome = sandbox.run(*command, "samples")
    assert outcome.code == 0, outcome.stderr
    assert "give the file itself: samples/rows.npz" in outcome.stderr
    assert "not split" not in sandbox.run(*command, "samples/rows.npz").stderr


@pytest.mark.parametrize("name", CASES)
def test_failure_is_one_sentence_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "ranges"),
    [
        ("coreml", ()),
        *(pytest.param(target, (), marks=pytest.mark.exhaustive) for target in ("tflite", "ort")),
        # So coarse that ONNX Runtime's levels are as far apart as quantization costs: the float original decides.
        ("tflite", ("--method", "minmax", "--no-bias-correction")),
    ],
)
def test_mobilenet_keeps_its_scales_in_every_target(
    target: str, ranges: tuple[str, ...], sandbox: Sandbox
) -> None:
    model = shutil.copy(models.path("mobilenetv2/mobilenetv2.onnx"), sandbox.folder / "mobilenet.onnx")
    photos = sandbox.folder / "photos"
    photos.mkdir()
    for photo in models.folder("foolbox/data").glob("imagenet_*.jpg"):
        shutil.copy(photo, photos)
    looks = ("resize=224x224", "scale=1/255", "mean=0.485,0.456,0.406", "std=0.229,0.224,0.225")
    preprocessing = [word for look in looks for word in ("--preprocess", look)]
    asked = (
        "--precision",
        "int8",
        "--calib",
        "photos",
        *preprocessing,
        "--shape",
        "input=1,3,224,224",
        *ranges,
    )
    outcome = sandbox.run("convert", model, "--to", target, *asked, "--json", timeout=280)
    assert outcome.code == 0, outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    found = {each["question"]: each for each in artifact["report"]["judgements"]}
    assert (found["fidelity"]["verdict"], found["quality"]["verdict"]) == ("proven", "measured")
    assert found["quality"]["outputs"][0]["sqnr_db"] > 12
    assert artifact["ratio"] < 0.3
