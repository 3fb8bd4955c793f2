"""Keys: whatever a product follows from is in them, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pydantic import BaseModel

from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.exporters.params import ExportParams
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.config.pipeline import Node
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.graph import cache_keys
from onnxport.pipelines.graph.cache_keys import describe_params, inputs_of, key_of
from onnxport.pipelines.graph.digests import digest_of, with_external_data
from onnxport.pipelines.registry import OPTIMIZE, QUANTIZE, TARGETS
from onnxport.pipelines.runner.jobs import Step
from onnxport.quantize.params import QuantizeParams
from onnxport.validate.params import ValidateParams
from tests.cli.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean}
"""

# Of every field of every params model another value than its default, or why it is in no key.
NOWHERE = "changes no result"
FIELDS: dict[type[BaseModel], dict[str, Any]] = {
    TfliteParams: {
        "shape": {"x": (1, 2)},
        "layout": "nhwc",
        "route": "direct",
        "allow_custom_ops": True,
        "onnx2tf": NOWHERE,
        "precision": "fp16",
        "dynamic_quantization": "keep",
        "io": "int8",
        "labels": {"": Path("labels.txt")},
        "fit": ("gpu",),
        "normalization": {"x": ((1.0,), (2.0,))},
    },
    CoremlParams: {
        "shape": {"x": (1, 2)},
        "precision": "fp16",
        "dynamic_quantization": "keep",
        "minimum_target": "iOS18",
        "weights": "int8",
        "image": {"x": ("RGB", (1.0,), (0.0,))},
        "labels": {"": Path("labels.txt")},
        "author": "A",
        "license": "B",
        "model_version": "C",
        "description": "D",
        "metadata": {"key": "text"},
        "compute_units": "cpuOnly",
        "state": {"in": "out"},
        "function": {"decode": Path("other.onnx")},
    },
    OrtParams: {"precision": "fp16", "level": "basic", "fit": ("webgpu",)},
    OptimizeParams: {
        "opset": 17,
        "simplify": False,
        "level": "ort-all",
        "passes": Path("passes.yaml"),
        "skip": ("fold",),
        "prune_unused": True,
        "drop_shapes": True,
        "shape": {"x": (1, 2)},
        "fp16": True,
        "io": "fp16",
    },
    QuantizeParams: {
        "precision": "int16x8",
        "calib": Path("samples"),
        "calib_samples": 7,
        "seed": 1,
        "strict": True,
        "preprocess": {"resize": "8"},
        "method": "entropy",
        "per_tensor": True,
        "activations": "s8",
        "bias_correction": False,
        "block": 32,
        "weights_method": "hqq",
        "weights_format": "nbits",
        "reduce_range": True,
        "for_cpu": "arm",
        "exclude": ("Conv",),
        "io": "fp16",
        "jobs": NOWHERE,
        "scheduler": NOWHERE,
        "memory_limit": NOWHERE,
        "cache": NOWHERE,
    },
    ExportParams: {
        "weights": Path("weights.pt"),
        "arg": {"classes": "10"},
        "input": {"x": "1,3:float32"},
        "dynamic": {"x": ("batch", None)},
        "output_names": ("y",),
        "opset": 17,
        "exporter": "torchscript",
        "signature": "other",
        "float64": True,
        "zipmap": True,
        "trust": True,
        "paddle2onnx": NOWHERE,
    },
    ValidateParams: {
        "shape": {"x": (1, 2)},
        "inputs": Path("samples"),
        "part": "held-back",
        "preprocess_is_shared": True,
        "samples": 7,
        "seed": 1,
        "map": {"y": "z"},
        "rtol": 0.1,
        "atol": 0.1,
        "accept_inconclusive": True,
        "budget": {"sqnr": 30.0},
        "metric": ("metrics:mine",),
        "accept_quality": True,
        "preprocess": {"resize": "8"},
        "state": {"in": "out"},
        "steps": 7,
        "timeout": NOWHERE,
        "memory_limit": NOWHERE,
        "reference_runtime": {"level": "basic"},
        "candidate_runtime": {"level": "basic"},
        "report_tensors": NOWHERE,
    },
}
# What NOWHERE's fields are set to, to see that nothing changes.
OTHERS: dict[str, Any] = {
    "onnx2tf": Path("elsewhere/onnx2tf"),
    "jobs": 8,
    "scheduler": "tcp://host:8786",
    "memory_limit": "1GB",
    "cache": False,
    "paddle2onnx": Path("elsewhere/paddle2onnx"),
    "timeout": 7.0,
    "report_tensors": Path("worst.npz"),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pipeline and one of each thing that an option may name."""
    shutil.copy(DIGITS, tmp_path)
    shutil.copy(DIGITS, tmp_path / "other.onnx")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "samples").mkdir()
    for name in ("labels.txt", "passes.yaml", "weights.pt", "samples/a.npz", "samples/preprocess.yaml"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def node(**changes: Any) -> Node:
    return replace(read(Path("pipeline.yaml")).nodes[-1], **changes)


def key(of: Node | None = None, origin: str = "origin", made: str = "made") -> str:
    of = of or node()
    return key_of(inputs_of(of, origin, (made,) * (len(of.chain) - 1)))


STAGES = {stage.params: stage for stage in (*TARGETS.values(), OPTIMIZE, QUANTIZE)}


def with_params(params: BaseModel) -> Node:
    """The pipeline's last node with other params, wherever these belong."""
    found = node()
    if isinstance(params, ValidateParams):
        return replace(found, validation=params)
    if isinstance(params, ExportParams):
        return replace(found, step=None, after=None, model=replace(found.model, export=params))
    return replace(found, step=Step(STAGES[type(params)], params))


@pytest.mark.parametrize("model", FIELDS, ids=lambda model: model.__name__)
def test_every_option_is_in_the_key_or_changes_no_result(model: type[BaseModel], project: Path) -> None:
    assert set(FIELDS[model]) == set(model.model_fields), "a new option needs a row"
    required = {"precision": "int8", "calib": "samples"} if model is QuantizeParams else {}
    params = model.model_validate(required).model_copy(
        update={"calib": None} if model is QuantizeParams else {}
    )
    before = key(with_params(params))
    seen = {before}
    for name, other in FIELDS[model].items():
        changed = OTHERS[name] if other is NOWHERE else other
        assert changed != getattr(params, name), name
        after = key(with_params(params.model_copy(update={name: changed})))
        assert (after == before) is (other is NOWHERE), name
        seen.add(after)
    assert len(seen) == 1 + sum(other is not NOWHERE for other in FIELDS[model].values())


def test_models_of_params_are_all_walked() -> None:
    assert set(FIELDS) == {*STAGES, ExportParams, ValidateParams}


@pytest.mark.parametrize(
    ("params", "file"),
    [
        (QuantizeParams(precision="int8", calib=Path("samples")), "samples/a.npz"),
        (QuantizeParams(precision="int8", calib=Path("samples")), "samples/preprocess.yaml"),
        (QuantizeParams(precision="int8", calib=Path("samples")), "samples/deeper/more.npz"),
        (ValidateParams(inputs=Path("samples")), "samples/a.npz"),
        (TfliteParams.model_validate({"labels": "labels.txt"}), "labels.txt"),
        (CoremlParams.model_validate({"function": {"decode": "other.onnx"}}), "other.onnx"),
        (OptimizeParams(passes=Path("passes.yaml")), "passes.yaml"),
        (ExportParams(weights=Path("weights.pt")), "weights.pt"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_contents_of_named_files_count(params: BaseModel, file: str, project: Path) -> None:
    before = key(with_params(params))
    place = project / file
    place.parent.mkdir(exist_ok=True)
    place.write_bytes((place.read_bytes() if place.exists() else b"") + b"\n")
    assert key(with_params(params)) != before


def test_names_in_a_folder_count_and_its_links_are_followed(project: Path) -> None:
    params = QuantizeParams(precision="int8", calib=Path("samples"))
    before = key(with_params(params))
    (project / "elsewhere").mkdir()
    (project / "elsewhere" / "b.npz").write_text("b")
    (project / "samples" / "linked").symlink_to("../elsewhere")
    (project / "samples" / "circle").symlink_to(".")
    linked = key(with_params(params))
    (project / "elsewhere" / "b.npz").write_text("B")
    changed = key(with_params(params))
    (project / "samples" / "a.npz").rename(project / "samples" / "c.npz")
    assert len({before, linked, changed, key(with_params(params))}) == 4


def test_source_and_products_before_count(project: Path) -> None:
    assert len({key(), key(origin="another"), key(made="another")}) == 3
    earlier = node()
    assert earlier.after is not None
    other = replace(earlier.after, step=Step(OPTIMIZE, OptimizeParams(opset=17)))  # whose product is the same
    assert key(replace(earlier, after=other)) != key()


def test_proof_and_latency_count(project: Path) -> None:
    assert len({key(), key(node(validation=None)), key(node(latency=False))}) == 3


def test_versions_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, before = metadata.version, key()
    for name in ("onnxruntime", "numpy", "onnx-ir"):
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "version", lambda each, name=name: "0" if each == name else real(each))
            cache_keys._version.cache_clear()
            assert key() != before, name
    cache_keys._version.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(cache_keys, "own_sources", lambda: "others")
        assert key() != before


def test_a_library_of_custom_operators_counts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, library = key(), project / "libacme.so"
    library.write_bytes(b"one")
    monkeypatch.setenv("ONNXPORT_CUSTOM_OPS_LIBRARY", str(library))
    given = key()
    library.write_bytes(b"other")
    assert len({before, given, key()}) == 3


def test_the_version_of_an_engine_that_judges_counts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = node(validation=ValidateParams(candidate_runtime={"runtime": "tract"}))
    real, before, others = metadata.version, key(judged), key()
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", lambda each: "0" if each == "tract" else real(each))
        cache_keys._version.cache_clear()
        assert key(judged) != before
        assert key() == others
    cache_keys._version.cache_clear()


def model_with_external_data(path: Path) -> Path:
    """A model of one product, whose weight lies in a file beside it."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4)) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight]
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    name = f"{'long' * 40}.data"  # more than 127 bytes, which take two to tell
    onnx.save(model, path, save_as_external_data=True, location=name, size_threshold=0)
    return path.parent / name


def test_external_data_is_part_of_the_model(project: Path) -> None:
    data = model_with_external_data(project / "other.onnx")
    origin = Artifact.open(project / "other.onnx")
    assert with_external_data(origin) == Model.load(origin.path).artifact
    before = digest_of(with_external_data(origin))
    assert before == Model.load(origin.path).artifact.digest()
    function = CoremlParams.model_validate({"function": {"decode": "other.onnx"}})
    said = describe_params(function)
    data.write_bytes(bytes(64))
    assert digest_of(with_external_data(origin)) != before
    assert describe_params(function) != said


def test_pillow_counts_where_samples_are_images(project: Path) -> None:
    """It comes with an extra: whoever installs it later keeps what was made of other samples."""
    judged = node(validation=ValidateParams(inputs=Path("samples")))
    calibrated = with_params(QuantizeParams(precision="int8", calib=Path("samples")))
    named = [
        "pillow" in inputs_of(each, "origin", ("made",))["versions"] for each in (node(), judged, calibrated)
    ]
    assert named == [False, False, False]
    (project / "samples" / "photo.JPG").write_text("an image")
    named = [
        "pillow" in inputs_of(each, "origin", ("made",))["versions"] for each in (node(), judged, calibrated)
    ]
    assert named == [False, True, True]


_PRINTED = """
import sys
from pathlib import Path
from onnxport.pipelines.graph.cache_keys import inputs_of, key_of
from onnxport.pipelines.config.reader import read
nodes = read(Path(sys.argv[1])).nodes
print([key_of(inputs_of(node, "origin", ("made",) * (len(node.chain) - 1))) for node in nodes])
assert not {"onnx", "onnx_ir", "onnxruntime", "torch"} & set(sys.modules), sorted(sys.modules)
"""


def test_keys_are_the_same_in_any_process_and_place(project: Path) -> None:
    (project / "pipeline.yaml").write_text(
        PIPELINE + "  phone: {to: tflite, labels: labels.txt}\n"
        "  small: {to: ort, precision: int8, calib: samples, exclude: [Conv, Gemm], validate: {budget: {sqnr: 9}}}\n"
    )
    moved = project / "moved" / "here"
    shutil.copytree(project, moved, ignore=lambda *_: {"moved"})
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PRINTED, pipeline],
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for pipeline, folder, seed in (
            ("pipeline.yaml", project, "1"),
            (str(moved / "pipeline.yaml"), ROOT, "2"),
        )
    }
    assert len(printed) == 1
    assert printed.pop().count("'") == 10  # five nodes


_LISTED = """
import os, sys
_seen = set()
def note(event, args):
    if event == "import" and (name := args[0].partition(".")[0]) not in _seen:
        _seen.add(name)
        with open(os.environ["IMPORTED"], "a") as file:
            file.write(name + "\\n")
sys.addaudithook(note)
"""
# What is imported along and computes nothing of a product: options, the command line, shapes as formulas (onnx-ir's,
# which we never ask), coremltools' own records and progress.
_BESIDES = set(
    "click rich markdown-it-py pydantic pydantic_core annotated-types typing-inspection typing_extensions packaging "
    "sympy mpmath attrs cattrs tqdm jinja2 markupsafe charset-normalizer psutil setuptools".lower().split()
)
# What coremltools looks for and is not given (converters/coreml/library.py), and what would come along with that.
_HIDDEN = set(
    "torch torchvision tensorflow tensorflow_cpu scikit-learn xgboost xgboost-cpu scipy keras pandas".split()
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("to", ["ort", "tflite", "coreml"])
def test_versions_of_all_that_a_stage_imports_are_in_its_key(to: str, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.patch(_LISTED)
    sandbox.environment["IMPORTED"] = str(tmp_path / "imported")
    sandbox.environment["ONNXPORT_CACHE"] = str(tmp_path / "cache")
    samples = DIGITS.with_name("test.npz")
    (sandbox.folder / "pipeline.yaml").write_text(
        f"version: 1\nmodel: model.onnx\nstages:\n  lean: {{use: optimize}}\n"
        f"  small: {{use: quantize, precision: int8, calib: {samples}, from: lean}}\n"
        f"targets:\n  it: {{to: {to}, from: small}}\n"
    )
    outcome = sandbox.run("run", "pipeline.yaml", "--json", timeout=300)
    assert outcome.code == 0, outcome.stderr
    last = outcome.document["nodes"][-1]
    (note,) = (tmp_path / "cache" / "stages").glob(f"*/{last['key']}/entry.json")
    known = {name.lower() for name in json.loads(note.read_text())["inputs"]["versions"]}
    imported = set((tmp_path / "imported").read_text().split()) - sys.stdlib_module_names
    by_module = metadata.packages_distributions()
    found = {name.lower() for module in imported for name in by_module.get(module, ())}
    assert {"numpy", "onnxruntime", "onnx-ir"} <= found
    assert found - known - _BESIDES - (_HIDDEN if to == "coreml" else set()) == set()
