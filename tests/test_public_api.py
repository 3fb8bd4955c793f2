"""`import onnxport`: every submodule imports, every public name works."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import InputError, NotProvenError, PipelineFailedError, UsageError
from onnxport.reports.run_report import RunReport

FRAMEWORKS = tuple(f"onnxport.exporters.{name}." for name in ("classical", "paddle", "pytorch", "tensorflow"))
DIGITS = Path(__file__).parents[1] / "fixtures" / "digits" / "digits.onnx"


def test_every_submodule_imports() -> None:
    """In a process of its own: MNN crashes where coremltools was imported before it."""
    names = [
        module.name
        for module in pkgutil.walk_packages(onnxport.__path__, "onnxport.")
        if not module.name.startswith(FRAMEWORKS)  # each is imported in its framework's own process
    ]
    assert "onnxport.converters.ort" in names
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    subprocess.run([sys.executable, "-c", program, *names], check=True)


def test_every_public_name_is_called_here() -> None:
    assert set(CALLS) == set(onnxport.__all__)
    assert set(onnxport.__all__) <= set(dir(onnxport))


def convert_model(folder: Path) -> None:
    result = onnxport.convert_model(DIGITS, to="ort", output=folder / "digits.ort", samples=2)
    assert isinstance(result, onnxport.ConversionResult)
    assert result.path == folder / "digits.ort"
    assert result.path.exists()
    assert isinstance(result.report, onnxport.Report)
    assert result.report.passed
    assert [output.name for output in result.report.outputs] == ["logits"]
    assert isinstance(result.run, RunReport)


def test_results_show_a_line_and_notebooks_the_report(tmp_path: Path) -> None:
    result = onnxport.convert_model(DIGITS, "ort", tmp_path / "digits.ort", samples=1)
    assert repr(result) == f"ConversionResult(path='{tmp_path / 'digits.ort'}', verdict='proven')"
    assert repr(result.report).startswith("Report(verdict='proven', reason='")
    assert len(repr(result.report)) + len(repr(result.run)) < 600
    shown = result._repr_markdown_()
    assert "| logits | ✓ proven |" in shown
    assert 'give your own with inputs="DIR"' in shown, "a notebook has no command line"
    assert "--inputs" not in shown


def test_a_notebook_names_the_samples_of_a_part_as_python_does(tmp_path: Path) -> None:
    result = onnxport.extract_model(DIGITS, tmp_path / "part.onnx", outputs="logits", samples=1)
    assert 'samples_from="DIR"' in result._repr_markdown_()


def test_only_public_names_are_offered() -> None:
    assert {name for name in dir(onnxport) if not name.startswith("__")} <= set(onnxport.__all__)


def export_model(folder: Path) -> None:
    result = onnxport.export_model(
        "tests.exporters.factories:small_net", folder / "net.onnx", input={"x": "1,3,16,16"}, samples=2
    )
    assert result.path == folder / "net.onnx"
    assert result.report.verdict == "proven"
    assert result.report.reference.format == "pytorch"
    assert "PyTorch" in result.report.reference.runtime


def write_samples(folder: Path) -> None:
    found = onnxport.write_samples(DIGITS, folder / "samples", seed=1)
    assert (folder / "samples" / found.files[0].path).is_file()


def profile_model(_: Path) -> None:
    report = onnxport.profile_model(DIGITS, runs=5)
    assert [node.op for node in report.nodes][-1] == "Gemm"
    assert report.nodes[-1].sources == ("logits",)


def inspect_deployment(_: Path) -> None:
    report = onnxport.inspect_deployment(DIGITS, ["ort-cpu"])
    assert [(each.runtime, each.extent) for each in report.placements] == [("ort-cpu", "all")]


def plan_memory(_: Path) -> None:
    plan = onnxport.plan_memory(DIGITS, {"image": (4, 1, 8, 8)})
    assert (plan.peak_node, plan.inputs) == ("bn2", 4 * 64 * 4)
    assert plan.peak == 4 * onnxport.plan_memory(DIGITS).peak


def optimize_model(folder: Path) -> None:
    result = onnxport.optimize_model(DIGITS, folder / "digits.onnx", opset=20)
    assert result.report.verdict == "proven"
    assert onnx.load(result.path).opset_import[0].version == 20


def extract_model(folder: Path) -> None:
    result = onnxport.extract_model(DIGITS, folder / "part.onnx", inputs=["relu1"], outputs="flat")
    assert result.report.verdict == "proven"
    assert [each.name for each in onnx.load(result.path).graph.input] == ["relu1"]


def quantize_model(folder: Path) -> None:
    result = onnxport.quantize_model(
        DIGITS, "int8", folder / "small.onnx", calib=DIGITS.with_name("test.npz"), budget={"sqnr": 30}
    )
    assert isinstance(result, onnxport.ConversionResult)
    assert result.path == folder / "small.onnx"
    assert result.path.stat().st_size < DIGITS.stat().st_size / 2
    assert result.report.verdict == "proven"
    assert len(result.report.fed) == 20, "what calibration held back of 360"


def validate_model(folder: Path) -> None:
    report = onnxport.validate_model(DIGITS, DIGITS, seed=3)
    assert isinstance(report, onnxport.Report)
    assert report.passed
    assert report.outputs[0].max_abs == 0


def debug_model(folder: Path) -> None:
    report = onnxport.debug_model(DIGITS, DIGITS, samples=1)
    assert report.passed
    assert report.diagnosis is not None
    assert report.diagnosis.node is None


def bench_models(folder: Path) -> None:
    report = onnxport.bench_models(DIGITS, runs=2, warmup=1, threads=1, levels=("disable", "all"))
    assert isinstance(report, onnxport.BenchReport)
    assert [row.settings.level for row in report.rows] == ["disable", "all"]
    assert all(row.latency is not None and row.latency.runs >= 2 for row in report.rows)
    assert report.exit_code == 0


def run_pipeline(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(f"version: 1\nmodel: {DIGITS}\ntargets: {{server: {{to: ort}}}}\n")
    report = onnxport.run_pipeline(folder / "pipeline.yaml")
    assert isinstance(report, onnxport.PipelineReport)
    assert report.passed
    (cell,) = report.cells
    assert (cell.name, cell.verdict) == ("digits/server", "proven")
    assert cell.path is not None
    assert Path(cell.path).is_file()


def load(folder: Path) -> None:
    with onnxport.load(DIGITS) as runtime:
        for member in ("name", "inputs", "outputs", "taps", "run", "close"):
            assert hasattr(onnxport.Runtime, member), member
            assert hasattr(runtime, member), member
        assert runtime.inputs == (onnxport.TensorSpec("image", "float32", ("N", 1, 8, 8)),)
        answer = runtime.run({"image": np.zeros((2, 1, 8, 8), np.float32)})
    assert answer["logits"].shape == (2, 10)


def metric(folder: Path) -> None:
    @onnxport.metric(better="lower")
    def gap(reference: dict[str, Any], candidate: dict[str, Any]) -> float:
        return 0.0

    assert gap({}, {}) == 0


def onnxport_error(folder: Path) -> None:
    with pytest.raises(onnxport.OnnxportError) as caught:
        onnxport.load(folder / "nowhere.onnx")
    assert caught.value.exit_code == 4


def version(folder: Path) -> None:
    assert onnxport.__version__.count(".") == 2


def limits(folder: Path) -> None:
    with onnxport.limits(parts=1), pytest.raises(InputError, match="--limit parts="):
        onnxport.convert_model(DIGITS, to="ort", output=folder / "digits.ort")


CALLS: dict[str, Callable[[Path], None]] = {
    "BenchReport": bench_models,
    "ConversionResult": convert_model,
    "OnnxportError": onnxport_error,
    "PipelineReport": run_pipeline,
    "Report": validate_model,
    "Runtime": load,
    "TensorSpec": load,
    "__version__": version,
    "bench_models": bench_models,
    "convert_model": convert_model,
    "debug_model": debug_model,
    "export_model": export_model,
    "inspect_deployment": inspect_deployment,
    "plan_memory": plan_memory,
    "profile_model": profile_model,
    "write_samples": write_samples,
    "extract_model": extract_model,
    "optimize_model": optimize_model,
    "limits": limits,
    "load": load,
    "metric": metric,
    "quantize_model": quantize_model,
    "run_pipeline": run_pipeline,
    "validate_model": validate_model,
}


@pytest.mark.parametrize("call", dict.fromkeys(CALLS.values()), ids=lambda call: call.__name__)
def test_public_name_works(call: Callable[[Path], None], tmp_path: Path) -> None:
    call(tmp_path)


@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_every_written_format_loads_and_answers_like_the_source(target: str, tmp_path: Path) -> None:
    result = onnxport.convert_model(DIGITS, to=target, output=tmp_path / f"digits.{target}")
    feeds = {"image": np.random.default_rng(0).random((3, 1, 8, 8), np.float32)}
    with onnxport.load(DIGITS) as source, onnxport.load(result.path) as made:
        assert [(spec.name, spec.dtype) for spec in made.inputs] == [("image", "float32")]
        np.testing.assert_allclose(
            made.run(feeds)["logits"], source.run(feeds)["logits"], rtol=1e-4, atol=1e-4
        )


def test_output_is_beside_the_model_unless_given(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(DIGITS.read_bytes())
    assert onnxport.convert_model(model, "ort").path == tmp_path / "model.ort"


def test_progress_is_told_of_every_step(tmp_path: Path) -> None:
    told: list[Any] = []

    class Listener:
        def started(self, step: str) -> None:
            told.append(("started", step))

        def finished(self, step: str, seconds: float) -> None:
            assert seconds >= 0
            told.append(("finished", step))

    onnxport.convert_model(DIGITS, "ort", tmp_path / "m.ort", progress=Listener())
    steps = ["load", "convert", "validate"]
    assert told == [(event, step) for step in steps for event in ("started", "finished")]


def test_wrong_artefact_raises_with_its_report_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxport.converters import ort
    from onnxport.formats.model import Model

    other = onnx.load(DIGITS)
    bias = next(tensor for tensor in other.graph.initializer if len(tensor.dims) == 1)
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(other, tmp_path / "other.onnx")
    right = ort.convert
    monkeypatch.setattr(
        ort, "convert", lambda model, *rest: right(Model.load(tmp_path / "other.onnx"), *rest)
    )
    with pytest.raises(NotProvenError, match="not equivalent") as caught:
        onnxport.convert_model(DIGITS, "ort", tmp_path / "m.ort")
    assert caught.value.report.artifacts[0].report.outputs[0].mismatches > 0
    assert {path.name for path in tmp_path.iterdir()} == {"other.onnx"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sampels": 3}, "converting to tflite has no option 'sampels'; did you mean 'samples'?"),
        ({"level": "all"}, "converting to tflite has no option 'level'"),
        ({"layout": "nchw"}, "option 'layout': 'nchw' is not allowed"),
        ({"shape": {"picture": (1, 1, 8, 8)}}, "no input 'picture'"),
        ({"shape": "picture=1,1,8,8"}, "no input 'picture'"),
        ({"shape": 8}, "shapes cannot be 8; write NAME=1,3,224,224"),
        ({"shape": {"image": 8}}, "8 is not a shape for input 'image'; give a tuple of sizes"),
        ({"samples": 0}, "option 'samples': 0 is not allowed; give 1 to 1000"),
        ({"samples": "many"}, "option 'samples': 'many' is not allowed; give a whole number"),
        ({"rtol": float("inf")}, "option 'rtol': inf is not allowed; give a finite number"),
        ({"layout": "nchw"}, "option 'layout': 'nchw' is not allowed; give 'keep' or 'nhwc'"),
    ],
)
def test_wrong_option_is_a_usage_error(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        onnxport.convert_model(DIGITS, "tflite", tmp_path / "m.tflite", **options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("precision", "options", "says"),
    [
        ("int8", {}, "--int8 needs samples of the model's inputs"),
        ("int8", {"calib": 5}, "option 'calib': 5 is not allowed; give a path"),
        (
            "int8",
            {"calib": DIGITS, "method": "kl"},
            "option 'method': 'kl' is not allowed; give 'auto', 'minmax'",
        ),
        (
            "int8",
            {"calib": DIGITS, "exclude": 3},
            "option 'exclude': 3 is not allowed; give text, or a list of",
        ),
        ("int9", {}, "option 'precision': 'int9' is not allowed; give 'int8', 'int16x8', 'dynamic'"),
        ("fp16", {"calibs": DIGITS}, "quantization has no option 'calibs'; did you mean 'calib'?"),
    ],
)
def test_wrong_option_of_quantization_is_a_usage_error(
    precision: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        onnxport.quantize_model(DIGITS, precision, **options)
    assert says in str(caught.value)


def test_a_budget_that_is_not_kept_raises_with_the_figures_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotProvenError, match="loses more accuracy") as caught:
        onnxport.quantize_model(
            DIGITS,
            "int8",
            tmp_path / "small.onnx",
            calib=DIGITS.with_name("test.npz"),
            budget={"sqnr": 200},
        )
    assert caught.value.report.artifacts[0].report.verdict == "over budget"
    assert not list(tmp_path.iterdir())


def test_a_pipeline_that_fails_raises_with_the_report_on_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"version: 1\nmodel: {DIGITS}\ntargets: {{small: {{to: ort, max_size: 1KB}}, server: {{to: ort}}}}\n"
    )
    with pytest.raises(
        PipelineFailedError, match=r"1 of 2 artefacts .* were not made: digits/small: "
    ) as caught:
        onnxport.run_pipeline(path)
    assert caught.value.exit_code == 1
    small, server = caught.value.report.cells
    assert small.path is None
    assert Path(server.path).is_file()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jobs": 0}, "jobs: 0 is not allowed; give 1 or more"),
        ({"jobs": "2"}, "jobs: '2' is not allowed; give 1 or more"),
        ({"memory_limit": "much"}, "'much' is not a memory size; give a size such as 500MB or 2GB"),
        ({"targets": "phone"}, "there is no target 'phone'; targets are server"),
        ({"targets": "digits/sever"}, "no target 'digits/sever'; did you mean 'digits/server'?"),
    ],
)
def test_wrong_option_of_a_pipeline_is_a_usage_error(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"version: 1\nmodel: {DIGITS}\ntargets: {{server: {{to: ort}}}}\n")
    with pytest.raises(UsageError) as caught:
        onnxport.run_pipeline(path, **options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"metric": len}, "give text, or a list of several"),
        ({"metric": [len]}, "option 'metric[0]': <built-in function len> is not allowed; give text"),
        ({"map": {"image": 3}}, ": 3 is not allowed; give text"),
        ({"budget": 7}, "named values cannot be 7; write NAME=VALUE"),
        ({"budget": {"sqnr": None}}, ": None is not allowed; give a number"),
        ({"timeout": 0}, "give more than 0, 1000000 at most"),
        ({"inputs": 5}, "option 'inputs': 5 is not allowed; give a path"),
        ({"inputs": "a\0b"}, "give a path without a NUL character"),
        ({"report_tensors": "a\0b.npz"}, "give a path without a NUL character"),
        ({"inputs": ".", "report_tensors": "t.npz"}, "--report-tensors t.npz lies in the folder of inputs"),
    ],
)
def test_wrong_option_of_the_judge_is_a_usage_error(options: dict[str, Any], says: str) -> None:
    for use in (onnxport.validate_model, onnxport.debug_model):
        with pytest.raises(UsageError) as caught:
            use(DIGITS, DIGITS, **options)
        assert says in str(caught.value)


def test_folder_that_is_no_path_is_a_usage_error() -> None:
    for output in (3, "", "a\0b"):
        with pytest.raises(UsageError, match="give the path of a folder"):
            onnxport.debug_model(DIGITS, DIGITS, output)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [None, 5, onnx.ModelProto(), b"model.onnx", "", "a\0.onnx"])
def test_model_that_is_no_path_is_a_usage_error(model: Any) -> None:
    for use in (
        lambda: onnxport.convert_model(model, "ort"),
        lambda: onnxport.validate_model(DIGITS, model),
        lambda: onnxport.load(model),
    ):
        with pytest.raises(
            UsageError,
            match=r"a model must be given by its path|the path of a model (is empty|contains a null character)",
        ):
            use()


@pytest.mark.parametrize("output", [3, b"m.ort", ""])
def test_output_that_is_no_path_is_a_usage_error(output: Any) -> None:
    with pytest.raises(UsageError, match="give the path of the file to write"):
        onnxport.convert_model(DIGITS, "ort", output)


def test_a_single_shape_may_be_given_as_text(tmp_path: Path) -> None:
    report = onnxport.validate_model(DIGITS, DIGITS, shape="image=2,1,8,8")
    assert {each.shapes["image"] for each in report.fed} == {(2, 1, 8, 8)}


def test_unknown_target_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="targets are tflite, coreml, ort"):
        onnxport.convert_model(DIGITS, "savedmodel")


def test_missing_reference_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.onnx does not exist"):
        onnxport.validate_model(tmp_path / "nowhere.onnx", DIGITS)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'convert'"):
        onnxport.convert  # type: ignore[attr-defined]  # noqa: B018


def test_import_does_not_shadow_the_functions() -> None:
    """A verb is never a room's name."""
    program = "import onnxport.api, onnxport.cli.convert, onnxport; print(callable(onnxport.convert_model))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
