"""ONNX Runtime behind the Runtime contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxport
from fixtures import graphs
from onnxport.core.errors import InputError, MachineError, MissingDependencyError, UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.runtime import OrtRuntime

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    path = tmp_path / "conv.onnx"
    onnx.save(graphs.conv_relu(), path)
    return path


def test_names_dtypes_and_open_dimensions_are_the_models_own(conv: Path) -> None:
    with onnxport.load(conv) as runtime:
        assert runtime.inputs == (TensorSpec("x", "float32", ("N", 3, 8, 10)),)
        assert runtime.outputs == (TensorSpec("y", "float32", ("N", 4, 8, 10)),)
        assert runtime.name.startswith("ONNX Runtime 1.")


@pytest.mark.parametrize(
    ("name", "number"),
    [("float8_e4m3fn", 17), ("float8_e4m3fnuz", 18), ("float8_e5m2", 19), ("float8_e5m2fnuz", 20)],
)
def test_inputs_of_float8_are_fed(name: str, number: int, tmp_path: Path) -> None:
    make = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)]
    given, result = make("x", number, ["n"]), make("y", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph(nodes, "g", [given], [result])
    opsets = [onnx.helper.make_opsetid("", 19)]
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=opsets), tmp_path / "m.onnx")
    values = np.array([-2, 0, 0.5, 1.75], np.float32)
    answer = OrtRuntime(tmp_path / "m.onnx").run({"x": values.astype(name)})
    assert answer["y"].tolist() == values.tolist()


def test_a_minus_one_or_a_question_mark_is_no_size_and_no_symbol(tmp_path: Path) -> None:
    model = graphs.conv_relu("?")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = -1
    onnx.save(model, tmp_path / "m.onnx")
    assert OrtRuntime(tmp_path / "m.onnx").inputs[0].shape == (None, 3, None, 10)


def test_inputs_of_bfloat16_are_fed(tmp_path: Path) -> None:
    make = onnx.helper.make_tensor_value_info
    ports = [make("x", onnx.TensorProto.BFLOAT16, ["n"]), make("k", onnx.TensorProto.FLOAT, [1])]
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Mul", ["wide", "k"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "graph", ports, [make("y", onnx.TensorProto.FLOAT, ["n"])])
    opsets = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    feeds = {"x": np.array([1.5, -3.0]).astype("bfloat16"), "k": np.array([2.0], np.float32)}
    with OrtRuntime(tmp_path / "m.onnx") as runtime:
        assert runtime.run(feeds)["y"].tolist() == [3.0, -6.0]


def test_taps_show_what_nodes_inside_compute(conv: Path) -> None:
    with OrtRuntime(conv) as runtime:
        assert runtime.taps == {"conv"}
        answers = runtime.run({"x": IMAGE}, taps=["conv"])
        np.testing.assert_array_equal(np.maximum(answers["conv"], 0), answers["y"])
        assert [spec.name for spec in runtime.outputs] == ["y"]


def test_taps_of_a_model_whose_weights_lie_beside_it(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    feeds = {"x": np.ones((1, 6), np.float32)}
    with OrtRuntime(path) as runtime, OrtRuntime.of_model(Model.load(path)) as again:
        tapped = runtime.run(feeds, taps=["logits"])
        assert tapped["logits"].shape == (1, 3)
        np.testing.assert_array_equal(again.run(feeds)["probabilities"], tapped["probabilities"])


def test_an_ort_file_runs_and_has_no_taps(conv: Path, tmp_path: Path) -> None:
    sealed = tmp_path / "conv.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(sealed)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(conv), options, providers=["CPUExecutionProvider"])
    with onnxport.load(sealed) as runtime, onnxport.load(conv) as original:
        np.testing.assert_allclose(
            runtime.run({"x": IMAGE})["y"], original.run({"x": IMAGE})["y"], rtol=1e-5, atol=1e-5
        )
        with pytest.raises(UsageError, match="exposes no intermediate values"):
            runtime.run({"x": IMAGE}, taps=["conv"])


def test_an_unknown_tap_is_refused(conv: Path) -> None:
    with (
        OrtRuntime(conv) as runtime,
        pytest.raises(UsageError, match=r"no intermediate values \['nowhere'\]"),
    ):
        runtime.run({"x": IMAGE}, taps=["nowhere"])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "lack \\['x'\\]"),
        ({"x": IMAGE, "z": IMAGE}, "have \\['z'\\]"),
        ({"x": IMAGE.astype(np.float64)}, "is float64, the model takes float32"),
        ({"x": IMAGE[:, :2]}, r"has shape \[2, 2, 8, 10\]"),
    ],
)
def test_feeds_that_do_not_fit_are_refused_by_name(
    conv: Path, feeds: dict[str, object], message: str
) -> None:
    with OrtRuntime(conv) as runtime, pytest.raises(UsageError, match=message):
        runtime.run(feeds)  # type: ignore[arg-type]


def test_sizes_that_the_layers_refuse_are_named_with_onnx_runtimes_cause(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, M] a, float[K] b) => (float[N, K] c) {c = Add(a, b)}'
    )
    onnx.save(model, tmp_path / "m.onnx")
    feeds = {"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float32)}
    with OrtRuntime(tmp_path / "m.onnx") as runtime, pytest.raises(RunError, match=r"a \[2, 3\], b \[4\]"):
        runtime.run(feeds)


def test_a_file_that_is_no_model_is_an_input_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"ONNX Runtime cannot load .*m\.onnx: ") as caught:
        OrtRuntime(path)
    assert "\n" not in str(caught.value)
    assert "ONNXRuntimeError" not in str(caught.value)


def test_an_operator_that_onnx_runtime_lacks_is_named(tmp_path: Path) -> None:
    model = graphs.mlp()
    model.graph.node[1].domain, model.graph.node[1].op_type = "com.example", "Frobnicate"
    model.opset_import.add(domain="com.example", version=1)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="Frobnicate"):
        OrtRuntime(tmp_path / "m.onnx")


def test_a_locale_that_the_machine_lacks_is_named(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (string[1] x) => (string[N] y) {'
        ' y = StringNormalizer <case_change_action = "LOWER", locale = "xx_XX"> (x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(MissingDependencyError, match="needs the locale xx_XX") as refused:
        OrtRuntime(tmp_path / "m.onnx")
    assert "locale-gen" in refused.value.fix


def test_onnx_runtime_prints_nothing_of_its_own(conv: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with OrtRuntime(conv) as runtime:
        runtime.run({"x": IMAGE})
    (conv.parent / "bad.onnx").write_bytes(b"junk")
    with pytest.raises(InputError):
        OrtRuntime(conv.parent / "bad.onnx")
    assert capfd.readouterr() == ("", "")


def test_where_in_onnx_runtime_it_arose_is_not_said(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (int32[1] x) => (int32[1] y) { y = Div(x, x) }'
    )
    model.graph.node[0].name = "d"
    onnx.save(model, tmp_path / "m.onnx")
    with OrtRuntime(tmp_path / "m.onnx") as runtime, pytest.raises(RunError) as refused:
        runtime.run({"x": np.zeros(1, np.int32)})
    assert refused.value.why == "Div 'd': Integer division by zero"


def test_a_run_beyond_the_machines_memory_is_the_machines_failure(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[1] x) => (float[a, b] y)'
        " <int64[2] s = {10000000, 10000000}> { y = Expand(x, s) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    with OrtRuntime(tmp_path / "m.onnx") as runtime, pytest.raises(MachineError, match="memory"):
        runtime.run({"x": np.zeros(1, np.float32)})


def test_an_opset_that_is_not_released_is_refused_in_one_sentence(tmp_path: Path) -> None:
    model = graphs.mlp()
    model.opset_import[0].version = 99
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"m\.onnx has opset 99, newer than ONNX Runtime \S+ knows \(\d+\); export"
    ):
        OrtRuntime(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x20\0\0\0ORTM" + bytes(100), "is truncated or damaged"),
        (b"\x1c\0\0\0TFL3" + bytes(100), "is not a model in ONNX Runtime format: it is a TFLite model"),
        (b"anything else there is", "is not a model in ONNX Runtime format"),
    ],
)
def test_a_damaged_or_foreign_ort_file_is_called_so(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "m.ort").write_bytes(content)
    with pytest.raises(InputError, match=said):
        OrtRuntime(tmp_path / "m.ort")


def test_a_scalar_is_taken_and_given_as_an_array(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float x) => (float y) { y = Exp(x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    with OrtRuntime(tmp_path / "m.onnx") as runtime:
        assert isinstance(runtime.run({"x": np.float32(0)})["y"], np.ndarray)  # type: ignore[dict-item]


def test_a_session_gets_every_option(conv: Path, tmp_path: Path) -> None:
    session = open_session(
        conv,
        level="basic",
        threads=3,
        spinning=False,
        prepacking=False,
        optimized=tmp_path / "optimized.onnx",
        config={"session.force_spinning_stop": "1"},
        enable_mem_pattern=False,
    )
    options = session.get_session_options()
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert (options.intra_op_num_threads, options.enable_mem_pattern) == (3, False)
    assert options.log_severity_level == 4
    for name, value in {
        "session.intra_op.allow_spinning": "0",
        "session.disable_prepacking": "1",
        "session.force_spinning_stop": "1",
    }.items():
        assert options.get_session_config_entry(name) == value
    assert (tmp_path / "optimized.onnx").is_file()
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_changed_copy_runs_with_the_data_of_its_source(tmp_path: Path) -> None:
    """As quantization has them: `--budget` and `--method auto` score copies before any has a file."""
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> network (float[1,4] x) => (float[1,3] y) '
        "{ middle = MatMul (x, w) y = Neg (middle) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    copy = Model.load(path).clone()
    copy.path = None
    x = np.ones((1, 4), np.float32)
    with OrtRuntime.of_model(copy) as runtime:
        np.testing.assert_allclose(runtime.run({"x": x})["y"], -x @ weight)
        np.testing.assert_allclose(runtime.run({"x": x}, taps=["middle"])["middle"], x @ weight)
