"""PyTorch's modules and programs as ONNX: names, shapes and answers as the user asked, refusals with their place.

In one process, since torch takes seconds to import; the installed command proves the targets at the end of the file.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from torch import nn

from fixtures import models
from onnxport.api import export_model
from onnxport.core.errors import CannotConvertError, InputError, NoSizesError, OnnxportError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.pytorch import load, of_object
from onnxport.exporters.pytorch.modules import TorchModel
from onnxport.exporters.sources import Source
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from tests.exporters import networks

NETWORKS = "tests.exporters.networks"


def opened(model: Any, **options: Any) -> TorchModel:
    return of_object(model, Source("pkg:build", "python", ()), ExportParams(**options))


def exported(
    model: Any, folder: Path, *, opset: int | None = None, **options: Any
) -> tuple[TorchModel, Path]:
    framework = opened(model, **options)
    return framework, framework.export(folder / "model.onnx", opset).path


def equal(framework: TorchModel, path: Path, feeds: dict[str, np.ndarray]) -> None:
    expected = framework.run(feeds)
    with OrtRuntime(path) as runtime:
        assert [spec.name for spec in runtime.inputs] == [spec.name for spec in framework.inputs]
        assert [spec.dtype for spec in runtime.outputs] == [spec.dtype for spec in framework.outputs]
        answers = runtime.run(feeds)
    assert list(answers) == list(expected)
    for name, answer in answers.items():
        np.testing.assert_allclose(answer, expected[name], rtol=1e-4, atol=1e-5)


def ids(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape)


def refusal(kind: type[OnnxportError], model: Any, folder: Path, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        exported(model, folder, **options)
    return str(caught.value)


# What comes out right.


@pytest.mark.parametrize(
    "kind",
    ["LSTM", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("GRU", "RNN"))],
)
def test_a_recurrent_layer_stays_one_operator_for_any_length(kind: str, tmp_path: Path) -> None:
    framework, path = exported(
        networks.tagger(kind), tmp_path, input="tokens=1,7:int64", dynamic="tokens=batch,length"
    )
    assert framework.inputs[0].shape == ("batch", "length")
    assert framework.outputs[0].shape == ("batch", "length", 5)
    ops = [node.op_type for node in onnx.load(path).graph.node]
    assert ops.count(kind) == 2
    assert "Loop" not in ops
    for shape in ((1, 1), (3, 20)):
        equal(framework, path, {"tokens": ids(*shape)})


def test_an_encoder_has_named_dimensions_and_hidden_rows_of_nothing_are_zero(tmp_path: Path) -> None:
    specs = ["tokens=1,7:int64", "padding_mask=1,7:bool"]
    dynamic = ["tokens=batch,length", "padding_mask=batch,length"]
    framework, path = exported(networks.encoder(), tmp_path, input=specs, dynamic=dynamic)
    assert [(spec.name, spec.shape) for spec in framework.outputs] == [
        ("hidden", ("batch", "length", 16)),
        ("pooled", ("batch", 16)),
    ]
    outputs = onnx.load(path).graph.output
    assert [dim.dim_param for dim in outputs[0].type.tensor_type.shape.dim] == ["batch", "length", ""]
    mask = np.zeros((3, 9), bool)
    mask[1, 4:] = mask[2] = True  # nothing at all is attended to in the last row
    equal(framework, path, {"tokens": ids(3, 9), "padding_mask": mask})
    equal(framework, path, {"tokens": ids(1, 5), "padding_mask": mask[:1, :5]})
    assert any("'length' is at most 64" in note for note in framework.notes)


def test_nms_is_onnxs_own(tmp_path: Path) -> None:
    framework, path = exported(
        networks.detector(), tmp_path, input="image=1,3,96,128", dynamic="image=_,_,height,width"
    )
    assert "NonMaxSuppression" in {node.op_type for node in onnx.load(path).graph.node}
    for size in ((96, 128), (160, 96)):
        pixels = np.random.default_rng(1).uniform(0, 255, (1, 3, *size)).astype(np.float32)
        equal(framework, path, {"image": pixels})


def test_inputs_go_by_name_and_by_place_and_outputs_are_named_after_keys(tmp_path: Path) -> None:
    framework, path = exported(
        networks.signature(), tmp_path, input=["shift=2,3", "data=2,3"], dynamic=["shift=n,_", "data=n,_"]
    )
    assert [spec.name for spec in framework.inputs] == ["data", "shift"]
    assert [spec.name for spec in framework.outputs] == ["y", "parts_0", "parts_1_sum"]
    assert "input 'data' is forward's parameter 'x'" in framework.notes
    assert "1 output is a constant or None, and was left out" in framework.notes
    random = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    equal(framework, path, {"data": random[0], "shift": random[1]})


@pytest.mark.parametrize(
    ("build", "names", "expected"),
    [
        (networks.giving_a_dataclass, (), ["first", "third"]),
        (networks.giving_back, ("same", "relu", "add"), ["same", "relu", "add"]),
    ],
)
def test_outputs_keep_their_names_whatever_torch_calls_values(
    build: Callable[[], nn.Module], names: Sequence[str], expected: list[str], tmp_path: Path
) -> None:
    framework, path = exported(build(), tmp_path, input="x=2,3,4", output_names=names)
    assert [spec.name for spec in framework.outputs] == expected
    equal(framework, path, {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)})


def test_a_size_that_must_be_a_multiple_stays_open(tmp_path: Path) -> None:
    framework, path = exported(networks.halving(), tmp_path, input="x=1,8", dynamic="x=n,width")
    for shape in ((1, 4), (3, 20)):
        equal(framework, path, {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)})
    with pytest.raises(RunError, match="forward refuses these inputs"):
        framework.run({"x": np.zeros((1, 7), np.float32)})


def test_the_users_module_is_left_as_it_was_but_for_eval(tmp_path: Path) -> None:
    module = networks.counting()
    framework, path = exported(module, tmp_path, input="x=2,3")
    assert any("changes calls from call to call" in note for note in framework.notes)
    assert any("training mode" in note for note in framework.notes)
    for _ in range(2):  # every call begins where the first did
        equal(framework, path, {"x": np.ones((2, 3), np.float32)})


def test_the_file_says_nothing_of_this_machine_and_is_the_same_again(tmp_path: Path) -> None:
    contents = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        contents.append(exported(networks.narrow(), folder, input="x=1,3", dynamic="x=n,_")[1].read_bytes())
    model = onnx.load_from_string(contents[0])
    assert str(Path(torch.__file__).parent).encode() not in contents[0]
    assert str(Path(__file__).parents[2]).encode() not in contents[0]
    assert not model.metadata_props
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
    assert [node.name for node in model.graph.node] == ["first/Gemm", "second/Gemm"]


@pytest.mark.parametrize(("asked", "written"), [(11, 18), pytest.param(26, 20, marks=pytest.mark.exhaustive)])
def test_the_opset_is_the_nearest_that_torch_writes(asked: int, written: int, tmp_path: Path) -> None:
    _, path = exported(networks.narrow(), tmp_path, input="x=1,3", opset=asked)
    assert onnx.load(path).opset_import[0].version == written


def test_tracing_is_told(tmp_path: Path) -> None:
    framework = opened(networks.deciding(), input="x=2,3", dynamic="x=n,_", exporter="torchscript")
    done = framework.export(tmp_path / "model.onnx", None)
    assert any("the example took" in note for note in done.notes)
    equal(framework, done.path, {"x": -np.ones((5, 3), np.float32)})


# Weights.


def test_weights_are_found_under_names_and_prefixes(tmp_path: Path) -> None:
    trained = networks.narrow()
    state = {f"module.{name}": tensor for name, tensor in trained.state_dict().items()}
    torch.save({"epoch": 3, "model": state}, tmp_path / "checkpoint.pth")
    safetensors.torch.save_file(trained.state_dict(), tmp_path / "plain.safetensors")
    feeds = {"x": np.ones((1, 3), np.float32)}
    expected = trained(torch.ones(1, 3)).detach().numpy()
    for file in ("checkpoint.pth", "plain.safetensors"):
        framework = opened(networks.narrow(), input="x=1,3", weights=tmp_path / file)
        np.testing.assert_array_equal(framework.run(feeds)["output"], expected)
    told = opened(networks.narrow(), input="x=1,3", weights=tmp_path / "checkpoint.pth").notes
    assert told[0] == "the weights are those under 'model' of checkpoint.pth, beside epoch"
    assert told[1] == "the weights' names were read without the prefix 'module.'"


def test_weights_that_do_not_fit_are_all_listed(tmp_path: Path) -> None:
    torch.save(
        {"first.weight": torch.ones(4, 3), "first.bias": torch.ones(5), "third": torch.ones(1)},
        tmp_path / "w.pt",
    )
    said = refusal(InputError, networks.narrow(), tmp_path, input="x=1,3", weights=tmp_path / "w.pt")
    assert "2 missing: second.weight, second.bias" in said
    assert "1 unexpected: third" in said
    assert "1 of another shape: first.bias [5] for [4]" in said


class _Running:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_weights_run_no_code(tmp_path: Path) -> None:
    torch.save({"state_dict": _Running(tmp_path / "ran")}, tmp_path / "w.pt")
    said = refusal(InputError, networks.narrow(), tmp_path, input="x=1,3", weights=tmp_path / "w.pt")
    assert "is not a state dict" in said
    assert "may run any code" in said
    assert not (tmp_path / "ran").exists()


# Exported programs, TorchScript, and files that are neither.


def test_a_program_has_its_own_inputs_and_open_dimensions(tmp_path: Path) -> None:
    torch.export.save(networks.program(), tmp_path / "net.pt2")
    source = Source(str(tmp_path / "net.pt2"), "pytorch", (tmp_path / "net.pt2",))
    framework = load(source, ExportParams(dynamic="input=rows,_"))
    assert framework.inputs[0].shape == ("rows", 3)
    assert framework.outputs[0].shape == ("rows", 2)
    path = framework.export(tmp_path / "model.onnx", None).path
    equal(framework, path, {"input": np.ones((7, 3), np.float32)})
    with pytest.raises(UsageError, match="example inputs in it"):
        load(source, ExportParams(input="input=1,3"))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("sample_inputs", lambda had, pickled: pickled),
        ("models/model.json", lambda had, pickled: had.replace(b"Symbol('", b"().__class__ + Symbol('")),
    ],
)
def test_a_program_runs_no_code(part: str, change: Callable[[bytes, bytes], bytes], tmp_path: Path) -> None:
    torch.export.save(networks.program(), tmp_path / "net.pt2")
    torch.save(_Running(tmp_path / "ran"), tmp_path / "pickled")
    bad = tmp_path / "bad.pt2"
    with zipfile.ZipFile(tmp_path / "net.pt2") as archive, zipfile.ZipFile(bad, "w") as copy:
        for name in archive.namelist():
            had = archive.read(name)
            copy.writestr(name, change(had, (tmp_path / "pickled").read_bytes()) if part in name else had)
    with pytest.raises(InputError, match="--trust"):
        load(Source.of(bad), ExportParams())
    assert not (tmp_path / "ran").exists()


def test_a_file_of_weights_is_no_model(tmp_path: Path) -> None:
    torch.save(networks.narrow().state_dict(), tmp_path / "w.pt")
    torch.save(networks.narrow(), tmp_path / "whole.pt")
    torch.jit.save(networks.scripted(), tmp_path / "script.pt")
    for file, why in (
        ("w.pt", "it holds weights"),
        ("whole.pt", "a pickled module is not loaded"),
        ("script.pt", "--exporter torchscript"),
    ):
        with pytest.raises(UsageError) as caught:
            load(Source.of(tmp_path / file), ExportParams(input="x=1,3"))
        assert why in str(caught.value)


@pytest.mark.exhaustive
def test_torchscript_is_traced_on_request(tmp_path: Path) -> None:
    torch.jit.save(networks.scripted(), tmp_path / "script.pt")
    params = ExportParams(input="x=1,3", dynamic="x=n,_", exporter="torchscript")
    framework = load(Source.of(tmp_path / "script.pt"), params)
    equal(framework, framework.export(tmp_path / "model.onnx", None).path, {"x": np.ones((4, 3), np.float32)})


# What is refused, with the place in the user's source.


Refused = tuple[type[OnnxportError], Callable[[], Any], dict[str, Any], list[str]]
REFUSED: dict[str, Refused] = {
    "data-dependent": (
        CannotConvertError,
        networks.deciding,
        {"input": "x=2,3"},
        ["values of its tensors in module 'inner.0' at", "networks.py:", "if x.sum() > 0:", "torch.where"],
    ),
    "one size": (
        CannotConvertError,
        networks.of_two_rows,
        {"input": "x=2,3,4", "dynamic": "x=batch,_,w"},
        ["'batch' (axis 0 of 'x') is always 2 in module 'inner.0' at", "doubled.view(2, 3, -1)"],
    ),
    "operator": (
        CannotConvertError,
        networks.untranslatable,
        {"input": "x=3,3"},
        ["aten._linalg_svd", "inner.0/", "networks.py:"],
    ),
    "numpy": (
        CannotConvertError,
        networks.of_numpy,
        {"input": "x=3,3"},
        ["it leaves PyTorch", "in module 'inner.0'"],
    ),
    "packed": (
        CannotConvertError,
        networks.packed,
        {"input": ["x=2,7,4", "lengths=2:int64"], "dynamic": ["x=n,length,_", "lengths=n"]},
        ["packed sequences", "networks.py:", "pack_padded_sequence(", "mask what it gives"],
    ),
    "strings": (UsageError, networks.narrow, {"input": "x=1,3:string"}, ["no tensors of string (input 'x')"]),
    "complex": (
        CannotConvertError,
        networks.spectral,
        {"input": "x=1,4"},
        ["'output' is complex"],
    ),
    "raises": (
        InputError,
        networks.narrow,
        {"input": "x=2,5"},
        [
            "raises on the example x=[2, 5]:float32 in module 'first'",
            "cannot be multiplied",
            "forward(input)",
        ],
    ),
    "no example": (UsageError, networks.narrow, {}, ["forward(input)", "--input input=DIMS:DTYPE"]),
    "lacks one": (
        UsageError,
        networks.signature,
        {"input": "x=2,3"},
        ["forward needs 'shift'", "shift: 'Tensor'", "--input shift=DIMS:DTYPE"],
    ),
    "one too many": (UsageError, networks.narrow, {"input": ["x=1,3", "y=1,3"]}, ["takes no input 'y'"]),
    "unknown open": (
        UsageError,
        networks.narrow,
        {"input": "x=1,3", "dynamic": "y=n,_"},
        ["--dynamic is given for 'y'", "the inputs are x"],
    ),
    "other rank": (
        UsageError,
        networks.narrow,
        {"input": "x=1,3", "dynamic": "x=n"},
        ["names 1 dimensions of 'x', which has 2"],
    ),
    "two sizes": (
        UsageError,
        networks.signature,
        {"input": ["x=2,3", "shift=4,3"], "dynamic": ["x=n,_", "shift=n,_"]},
        ["'n' is 2 in 'x' and 4 in 'shift'"],
    ),
    "output names": (
        UsageError,
        networks.narrow,
        {"input": "x=1,3", "output_names": ("a", "b")},
        ["2 output names are given for 1 outputs"],
    ),
    "torchscript": (UsageError, networks.scripted, {"input": "x=1,3"}, ["--exporter torchscript"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_has_its_place_and_the_way_out(case: str, tmp_path: Path) -> None:
    kind, build, options, parts = REFUSED[case]
    said = refusal(kind, build(), tmp_path, **options)
    for part in parts:
        assert part in said


def test_a_size_that_only_one_input_leaves_open_is_named(tmp_path: Path) -> None:
    said = refusal(
        CannotConvertError, networks.signature(), tmp_path, input=["x=3,3", "shift=3,3"], dynamic="x=batch,_"
    )
    assert "'batch' (axis 0 of 'x') is always 3" in said
    assert "axis 0 of 'shift'" in said


# The targets, through the public API and the installed command, each in processes of its own.

TARGETS = {
    "mobilenetv2": (["image=1,3,224,224"], ["image=batch,_,_,_"], "mobilenetv2/mobilenetv2.onnx"),
    "efficientnet_lite0": (
        ["image=1,3,224,224"],
        ["image=batch,_,_,_"],
        "efficientnet_lite0/efficientnet_lite0.onnx",
    ),
    "resnet18": (["image=1,3,64,96"], ["image=batch,_,height,width"], ""),
    "tagger": (["tokens=1,7:int64"], ["tokens=batch,length"], ""),
    "encoder": (
        ["tokens=1,7:int64", "padding_mask=1,7:bool"],
        ["tokens=batch,length", "padding_mask=batch,length"],
        "",
    ),
    "detector": (["image=1,3,96,128"], ["image=_,_,height,width"], ""),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.exhaustive
@pytest.mark.real
def test_a_target_is_proven_by_the_command(name: str, tmp_path: Path) -> None:
    specs, dynamic, weights = TARGETS[name]
    where = ["-o", str(tmp_path / "model.onnx")]
    command = [sys.executable, "-m", "onnxport", "export", f"{NETWORKS}:{name}", *where]
    command += [part for spec in specs for part in ("--input", spec)]
    command += [part for dims in dynamic for part in ("--dynamic", dims)]
    command += ["--weights", str(models.weights(weights))] if weights else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "proven" in run.stdout


@pytest.mark.exhaustive
def test_the_public_api_proves_an_export(tmp_path: Path) -> None:
    result = export_model(f"{NETWORKS}:narrow", tmp_path / "net.onnx", input="x=1,3", dynamic="x=rows,_")
    assert result.report.verdict == "proven"
    assert {fed.shapes["x"][0] for fed in result.report.fed} >= {1, 3}


@pytest.mark.exhaustive
def test_open_dimensions_of_which_one_size_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoSizesError, match=r"for 'h', 'w': .* cannot be multiplied .* out of --dynamic"):
        export_model(f"{NETWORKS}:flattening", tmp_path / "net.onnx", input="x=1,1,8,8", dynamic="x=_,_,h,w")
