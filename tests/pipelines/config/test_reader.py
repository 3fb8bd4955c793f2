"""What a pipeline.yaml comes to: models, shared nodes, proofs with several owners, variables, includes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnxport.core.errors import OnnxportError
from onnxport.exporters.params import ExportParams
from onnxport.pipelines.config.pipeline import Node, Pipeline
from onnxport.pipelines.config.reader import read
from onnxport.quantize.params import QuantizeParams
from onnxport.validate.params import ValidateParams
from tests.pipelines.config.conftest import Read, faults

HEAD = "version: 1\nmodel: model.onnx\n"


def nodes(pipeline: Pipeline) -> list[tuple[str, str]]:
    return [(node.name, node.after.name if node.after else "") for node in pipeline.nodes]


def outputs(pipeline: Pipeline) -> list[str]:
    return [str(cell.output) for cell in pipeline.cells]


def proof(pipeline: Pipeline, name: str) -> ValidateParams:
    (node,) = (node for node in pipeline.nodes if node.name == name)
    assert node.validation is not None
    return node.validation


def params(node: Node) -> dict[str, object]:
    assert node.step is not None
    return node.step.params.model_dump(exclude_unset=True) | {
        "calib": getattr(node.step.params, "calib", None)
    }


def test_what_does_the_same_is_one_node(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "stages:\n  lean: {use: optimize}\ntargets:\n"
        "  a: {to: tflite, from: lean, precision: int8, calib: samples, for_cpu: any}\n"
        "  b: {to: ort, from: lean, precision: int8, calib: samples, level: basic}\n"
        "  c: {to: ort, precision: int8, calib: samples}\n"
        "  d: {to: ort, from: lean, precision: int8, calib: samples, method: minmax}\n"
        "  e: {to: ort, from: lean, precision: int8, calib: samples, validate: {seed: 3}}\n"
        "  f: {to: onnx, from: lean}\n"
    )
    assert nodes(found) == [
        ("model/lean", ""),
        ("model/a/quantize", "model/lean"),
        ("model/a", "model/a/quantize"),
        ("model/b", "model/a/quantize"),
        ("model/c/quantize", ""),
        ("model/c", "model/c/quantize"),
        ("model/d/quantize", "model/lean"),
        ("model/d", "model/d/quantize"),
        ("model/e/quantize", "model/lean"),
        ("model/e", "model/e/quantize"),
    ]
    assert [node.name for node in found.nodes if node.latency] == [
        "model/lean",
        *(f"model/{t}" for t in "abcde"),
    ]
    assert found.cells[-1].node is found.nodes[0]


def test_models_by_pattern_name_and_list(project: Path, pipeline: Read) -> None:
    (project / "nets").mkdir()
    for name in ("one", "two"):
        shutil.copy("model.onnx", project / "nets" / f"{name}.onnx")
    found = pipeline(
        "version: 1\nmodels: {nets: nets/*.onnx, big: model.onnx}\n"
        "targets:\n  a: {to: ort, models: [nets]}\n  b: {to: ort, models: [big, two]}\n"
    )
    assert outputs(found) == ["build/one/a.ort", "build/two/a.ort", "build/two/b.ort", "build/big/b.ort"]
    found = pipeline("version: 1\nmodels: ['nets/*.onnx', model.onnx]\ntargets: {a: {to: ort}}\n")
    assert [cell.model for cell in found.cells] == ["one", "two", "model"]
    found = pipeline("version: 1\nmodels: '**/t*.onnx'\ntargets: {a: {to: ort}}\n")
    assert [cell.model for cell in found.cells] == ["two"]


def test_two_files_of_one_name_are_told(project: Path, pipeline: Read) -> None:
    (project / "other").mkdir()
    shutil.copy("model.onnx", "other")
    with pytest.raises(OnnxportError) as caught:
        pipeline("version: 1\nmodels: '**/*.onnx'\ntargets: {a: {to: ort}}\n")
    assert faults(caught.value) == [
        "2, models: other/model.onnx has the name 'model', like the model of pipeline.yaml:2, models; give each a name "
        "of its own: models: {NAME: PATH}"
    ]


def test_what_has_to_be_exported_is_found_beside_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "nets.py").write_text("def build(): ...\n")
    (project / "sub" / "weights.pt").write_bytes(b"x")
    (project / "sub" / "pipeline.yaml").write_text(
        "version: 1\nmodels:\n  net: {source: 'nets:build', export: {weights: weights.pt, arg: {n: 3, s: 1.10, "
        "b: true, l: [1, 2]}, input: {x: [1, 3]}, opset: 17}, validate: {seed: 4}}\n"
        "targets: {a: {to: onnx}, b: {to: ort}}\n"
    )
    found = read(Path("sub/pipeline.yaml"))
    assert nodes(found) == [("net/export", ""), ("net/b", "net/export")]
    export = found.nodes[0].model.export
    assert isinstance(export, ExportParams)
    assert (export.arg, export.opset) == ({"n": "3", "s": "1.10", "b": "true", "l": "[1, 2]"}, 17)
    assert export.input["x"].shape == (1, 3)
    assert export.weights == Path("sub/weights.pt")
    assert [str(file) for file in found.nodes[0].model.origin.files] == ["sub/nets.py", "sub/weights.pt"]
    assert (proof(found, "net/export").seed, proof(found, "net/b").seed) == (4, 4)


def test_the_nearest_has_the_say_in_a_proof(pipeline: Read) -> None:
    found = pipeline(
        "version: 1\nvalidate: {seed: 1, samples: 5, budget: {sqnr: 20, top1_agreement: 0.9}}\n"
        "models: {m: {source: model.onnx, validate: {samples: 6, budget: sqnr=25}}}\n"
        "stages: {s: {use: optimize, validate: {seed: 2}}}\n"
        "targets: {a: {to: ort, from: s, validate: {budget: {top1_agreement: 0.8}}}, b: {to: ort}}\n"
    )
    assert (proof(found, "m/s").seed, proof(found, "m/s").samples) == (2, 6)
    assert (proof(found, "m/a").seed, proof(found, "m/a").budget) == (
        1,
        {"sqnr": 25.0, "top1_agreement": 0.8},
    )
    assert proof(found, "m/b").budget == {"sqnr": 25.0, "top1_agreement": 0.9}


def test_no_proof_is_an_explicit_wish_that_the_nearest_may_take_back(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "validate: {seed: 7}\ntargets:\n  a: {to: ort, level: basic, validate: false}\n"
        "  b: {to: tflite, precision: int8, calib: samples, validate: false}\n  c: {to: ort}\n"
    )
    assert [node.name for node in found.nodes if node.validation is None] == [
        "model/a",
        "model/b/quantize",
        "model/b",
    ]
    found = pipeline(HEAD + "validate: false\ntargets: {a: {to: ort}, b: {to: tflite, validate: true}}\n")
    assert [node.validation is None for node in found.nodes] == [True, False]


def test_how_a_model_is_fed_reaches_the_proofs_behind(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "stages: {s: {use: optimize, shape: {image: '1,1,8,8'}}}\n"
        "targets: {a: {to: ort, from: s}, b: {to: tflite, shape: 'image=2,1,8,8'}}\n"
    )
    assert proof(found, "model/a").shape == {"image": (1, 1, 8, 8)}
    assert proof(found, "model/b").shape == {"image": (2, 1, 8, 8)}


def test_samples_to_calibrate_on_are_read_as_those_of_the_proof(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "validate: {preprocess: {scale: 1/255}}\n"
        "stages: {q: {use: quantize, precision: int8, calib: samples, seed: 5}}\n"
        "targets: {a: {to: ort, from: q}, b: {to: ort}, c: {to: ort, precision: int8, calib: samples, "
        "preprocess: {scale: 1}}}\n"
    )
    quantized = found.nodes[0]
    assert isinstance(quantized.step and quantized.step.params, QuantizeParams)
    assert params(quantized)["preprocess"] == {"scale": "1/255"}
    for name in ("model/q", "model/a"):
        assert proof(found, name).preprocess == {"scale": "1/255"}
        assert (proof(found, name).inputs, proof(found, name).part) == (Path("samples"), "held-back")
        assert proof(found, name).seed == 5
    assert proof(found, "model/b").preprocess == {}  # it is fed no images
    assert proof(found, "model/c").preprocess == {"scale": "1"}


def test_a_matrix_has_a_cell_for_each_combination(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "stages: {lean: {use: optimize}}\ntargets:\n"
        "  a: {to: ort, matrix: {from: [lean, null], level: [basic, all]}}\n"
        "  b: {to: tflite, matrix: {layout: [keep, nhwc], shape: ['image=1,1,8,8', {image: [2, 1, 8, 8]}]}, "
        "output: 'out/{target}/{layout}/{shape}.tflite'}\n"
    )
    assert outputs(found) == [
        *(f"build/model/a-{f}-{level}.ort" for f in ("lean", "default") for level in ("basic", "all")),
        *(f"out/b/{layout}/image={n},1,8,8.tflite" for layout in ("keep", "nhwc") for n in (1, 2)),
    ]
    assert found.cells[0].name == "model/a/lean/basic"
    assert dict(found.cells[0].values) == {"from": "lean", "level": "basic"}
    assert [cell.node.after and cell.node.after.name for cell in found.cells[:3]] == ["model/lean"] * 2 + [
        None
    ]


def test_yaml_says_what_it_looks_like(pipeline: Read) -> None:
    found = pipeline(
        HEAD + "validate: {accept_quality: on, accept_inconclusive: no, samples: 1_0, map: {1: 2, on: off}}\n"
        "targets:\n  a: &a {to: coreml, model_version: 1.10, license: 007x, metadata: {date: 2026-01-01, n: 1.0}}\n"
        "  b:\n    <<: *a\n    author: me\n    model_version:\n"
    )
    (a, b) = found.nodes
    assert (params(a)["model_version"], params(a)["license"]) == ("1.10", "007x")
    assert params(a)["metadata"] == {"date": "2026-01-01", "n": "1.0"}
    assert (params(b)["author"], "model_version" in params(b)) == ("me", False)
    judged = proof(found, "model/a")
    assert (judged.accept_quality, judged.accept_inconclusive, judged.samples) == (True, False, 10)
    assert judged.map == {"1": "2", "on": "off"}


def test_the_environment_fills_in_values(pipeline: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        HEAD + 'output: ${OUT:-build}/$${X}\nvalidate: {samples: "${N}", seed: 3}\n'
        "targets:\n  a:\n    to: ort\n    level: ${LEVEL}\n"
    )
    monkeypatch.setenv("N", "7")
    monkeypatch.setenv("LEVEL", "basic}\nb: {to: ort")
    with pytest.raises(OnnxportError, match=r"targets\.a\.level: 'basic}"):  # text, never YAML
        pipeline(text)
    monkeypatch.setenv("LEVEL", "basic")
    found = pipeline(text)
    assert (outputs(found), proof(found, "model/a").samples) == (["build/${X}/model/a.ort"], 7)
    monkeypatch.setenv("OUT", "")
    assert outputs(pipeline(text)) == ["build/${X}/model/a.ort"]


def test_an_include_adds_entries_and_the_file_itself_wins(project: Path, pipeline: Read) -> None:
    (project / "shared").mkdir()
    (project / "shared" / "base.yaml").write_text(
        "validate: {seed: 1, samples: 4}\nstages:\n  lean: {use: optimize}\n  unused: {use: optimize, opset: 17}\n"
        "targets:\n  a: {to: ort, from: lean, level: basic}\n  b: {to: ort, levle: all}\noutput: elsewhere\n"
    )
    own = HEAD + "include: shared/base.yaml\nvalidate: {seed: 2}\ntargets:\n  b: {to: tflite, from: lean}\n"
    found = pipeline(own)
    assert outputs(found) == ["elsewhere/model/a.ort", "elsewhere/model/b.tflite"]
    assert (proof(found, "model/a").seed, proof(found, "model/a").samples) == (2, 4)
    with pytest.raises(OnnxportError) as caught:
        pipeline(own.replace("  b: {to: tflite, from: lean}", "  c: {to: tflite, from: lean}"))
    assert faults(caught.value) == [
        "shared/base.yaml:7, targets.b.levle: converting to ort has no option 'levle'; did you mean 'level'?"
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "../x.yaml",
            "3, include: ../x.yaml lies outside of the pipeline's folder; give a path below that folder",
        ),
        (
            "/etc/hosts",
            "3, include: /etc/hosts lies outside of the pipeline's folder; give a path below that folder",
        ),
        ("link.yaml", "3, include: link.yaml lies outside of the pipeline's folder; copy it there"),
        ("one.yaml", "one.yaml:1, include[0]: two.yaml includes itself; leave one include out"),
        ("pipeline.yaml", "3, include: pipeline.yaml includes itself; leave one include out"),
        ("{a: b}", "3, include: a mapping of keys is not a file; give a path, or a list of several"),
    ],
)
def test_an_include_stays_in_the_folder_and_ends(
    given: str, sentence: str, project: Path, pipeline: Read, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "x.yaml"
    outside.write_text("output: x\n")
    (project / "link.yaml").symlink_to(outside)
    (project / "one.yaml").write_text("include: [two.yaml]\n")
    (project / "two.yaml").write_text("include: one.yaml\n")
    with pytest.raises(OnnxportError) as caught:
        pipeline(HEAD + f"include: {given}\ntargets: {{a: {{to: ort}}}}\n")
    found = faults(caught.value)
    if given == "one.yaml":
        sentence = "two.yaml:1, include: one.yaml includes itself; leave one include out"
    assert found == [sentence]
