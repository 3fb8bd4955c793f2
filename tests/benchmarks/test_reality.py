"""The table of truth: what it calls right and wrong, how it follows advice, and what its page counts."""

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from benchmarks.matching import Array
from benchmarks.reality import __main__ as command
from benchmarks.reality import conversion
from benchmarks.reality.check import (
    DIFFERENT,
    NOT_CHECKED,
    SAME,
    Check,
    check,
    declared_sizes,
    filled,
    random_inputs,
    tolerance,
)
from benchmarks.reality.conversion import (
    CRASHED,
    REFUSED,
    RIGHT,
    SLOW,
    UNPROVEN,
    WRONG,
    Row,
    checked,
    fed_sizes,
    outcome_of,
    way_out,
)
from benchmarks.reality.page import by_hand, cause, page
from fixtures import models, reality

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
KEYS = reality.keys()
ROW = Row(KEYS[0], "ort", "fp32", RIGHT, (), 1, 0, "", "", 2.0, 100.0, size=1000)


def ort_of(model: Path, target: Path) -> Path:
    """Let ONNX Runtime itself write its format."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = os.fspath(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    return target


def other_weights(model: Path, target: Path, factor: float) -> Path:
    """Scale the largest weights of a model."""
    proto = onnx.load(model)
    weights = max(proto.graph.initializer, key=lambda each: int(np.prod(each.dims)))
    scaled = numpy_helper.to_array(weights) * np.float32(factor)
    weights.CopyFrom(numpy_helper.from_array(scaled.astype(np.float32), weights.name))
    onnx.save(proto, target)
    return target


def test_an_artefact_of_the_same_weights_is_the_same_and_one_of_others_is_not(tmp_path: Path) -> None:
    artefact = ort_of(DIGITS, tmp_path / "digits.ort")
    assert check(DIGITS, artefact, {}, 1, "fp32").verdict == SAME
    found = check(other_weights(DIGITS, tmp_path / "other.onnx", 1.05), artefact, {}, 1, "fp32")
    assert found.verdict == DIFFERENT
    assert found.error > 1e-3


@pytest.mark.real
def test_the_authors_own_tflite_is_the_same_and_one_of_other_weights_is_not(tmp_path: Path) -> None:
    model, theirs = models.path("basic-pitch/nmp.onnx"), models.path("basic-pitch/nmp.tflite")
    sizes = models.shapes("basic-pitch/nmp.onnx")
    assert check(model, theirs, sizes, 1, "fp32").verdict == SAME
    other = other_weights(model, tmp_path / "other.onnx", 1.2)
    assert check(other, theirs, sizes, 1, "fp32").verdict == DIFFERENT


def test_an_artefact_that_does_not_load_is_different(tmp_path: Path) -> None:
    for name in ("bad.tflite", "bad.ort"):
        (tmp_path / name).write_bytes(b"nothing that a runtime reads")
        assert checked(DIGITS, tmp_path / name, {}, "fp32").verdict == DIFFERENT


def test_an_output_that_is_nan_for_random_inputs_is_not_checked(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Div", ["x", "zero"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    zero = numpy_helper.from_array(np.zeros(4, np.float32), "zero")
    copied = onnx.helper.make_node("Identity", ["x"], ["z"])
    third = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [4])
    opset = [onnx.helper.make_opsetid("", 17)]
    for nodes, outputs, verdict in (
        ([node], ports[1:], NOT_CHECKED),
        ([node, copied], [*ports[1:], third], SAME),
    ):
        graph = onnx.helper.make_graph(nodes, "g", ports[:1], outputs, [zero])
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "n.onnx")
        artefact = ort_of(tmp_path / "n.onnx", tmp_path / "n.ort")
        assert check(tmp_path / "n.onnx", artefact, {}, 1, "fp32").verdict == verdict


def test_a_silent_output_is_the_same_whatever_its_rounding(tmp_path: Path) -> None:
    port = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    files = {}
    for name, factor in (("a", 1e-7), ("b", 2e-7), ("c", 1e-3), ("d", 2e-3)):
        factors = numpy_helper.from_array(np.full(4, factor, np.float32), "f")
        node = onnx.helper.make_node("Mul", ["x", "f"], ["y"])
        graph = onnx.helper.make_graph([node], "g", port[:1], port[1:], [factors])
        opset = [onnx.helper.make_opsetid("", 17)]
        files[name] = tmp_path / f"{name}.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), files[name])
    for model, other, verdict in (("a", "b", SAME), ("c", "d", DIFFERENT)):
        artefact = ort_of(files[other], tmp_path / f"{other}.ort")
        assert check(files[model], artefact, {}, 1, "fp32").verdict == verdict


def test_what_rounding_of_weights_costs_is_no_fault_at_float16_and_proves_nothing(tmp_path: Path) -> None:
    """Two products that nearly cancel: their difference is as small as the rounding of their weights."""
    first = np.random.default_rng(0).random((32, 32)).astype(np.float32) + 1
    second = first * np.float32(1 + 4e-4)
    halves = [each.astype(np.float16).astype(np.float32) for each in (first, second)]
    model = cancelling(first, second, tmp_path / "m.onnx")
    half = ort_of(cancelling(*halves, tmp_path / "half.onnx"), tmp_path / "half.ort")
    other = ort_of(cancelling(second, first * 1.01, tmp_path / "other.onnx"), tmp_path / "other.ort")
    assert check(model, half, {}, 1, "fp32").verdict == DIFFERENT
    found = check(model, half, {}, 1, "fp16")
    assert found.verdict == NOT_CHECKED, "a fault as small would not show"
    assert "rounding its weights to float16 alone" in found.told
    assert check(model, other, {}, 1, "fp16").verdict == DIFFERENT


def cancelling(first: Array, second: Array, target: Path) -> Path:
    """The difference of two products of one input."""
    port = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 32]) for name in "xy"]
    nodes = [onnx.helper.make_node("MatMul", ["x", each], [f"p{each}"]) for each in "ab"]
    nodes.append(onnx.helper.make_node("Sub", ["pa", "pb"], ["y"]))
    weights = [
        numpy_helper.from_array(each.astype(np.float32), name)
        for each, name in zip((first, second), "ab", strict=True)
    ]
    graph = onnx.helper.make_graph(nodes, "g", port[:1], port[1:], weights)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), target)
    return target


def test_a_model_of_strings_is_not_checked(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    text = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", text[:1], text[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "s.onnx")
    artefact = ort_of(tmp_path / "s.onnx", tmp_path / "s.ort")
    assert check(tmp_path / "s.onnx", artefact, {}, 1, "fp32").verdict == NOT_CHECKED


@pytest.mark.real
def test_a_model_that_rounds_by_itself_may_differ_by_more() -> None:
    assert tolerance(DIGITS, "fp32") == 1e-3
    assert tolerance(models.path("smart-turn/smart-turn-v3.2-cpu.onnx"), "fp32") == 0.1
    assert tolerance(reality.path("guard-fp16/model_fp16.onnx"), "fp32") == 3e-2


def test_inputs_come_from_the_seed_and_fill_open_sizes() -> None:
    declared: dict[str, tuple[int | str | None, ...]] = {"x": ("n", 3, "h", "w"), "ids": (None, "t"), "r": ()}
    assert filled(declared, {"ids": (2, 7)}) == {"x": (1, 3, 224, 224), "ids": (2, 7), "r": ()}
    sizes = filled(declared_sizes(DIGITS), {})
    first, again, other = (random_inputs(DIGITS, sizes, seed, 0) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("give the sizes: --shape x=1,3,SIZE,SIZE, or inputs", ["--shape", "x=1,3,224,224"]),
        (
            "fix it: --shape ids=batch,seq --shape mask=batch,seq (a number for seq)",
            ["--shape", "ids=2,7", "--shape", "mask=2,7"],
        ),
        ("give --shape 'a b=1,16' or --shape 'a b=1,32'", ["--shape", "a b=1,16"]),
        ("give --shape x=1..8,16|32,? (a number for n)", ["--shape", "x=1..8,16|32,?"]),
        ("use --shape NAME=... for the open input", []),
        (
            "the floor is 10 dB: convert with --dynamic-quantization keep, which takes longer to run",
            ["--dynamic-quantization", "keep"],
        ),
        ("the model has 3 nodes without an equivalent", []),
    ],
)
def test_the_way_out_of_a_message_is_followed(message: str, expected: list[str]) -> None:
    assert way_out(message, {"ids": (2, 7), "rate": ()}) == expected


@pytest.mark.parametrize(
    ("code", "outcome"), [(0, RIGHT), (1, UNPROVEN), (2, REFUSED), (4, REFUSED), (6, CRASHED), (70, CRASHED)]
)
def test_an_exit_code_is_an_outcome(code: int, outcome: str) -> None:
    assert outcome_of(code) == outcome
    assert outcome_of(None) == SLOW
    assert outcome_of(-11) == CRASHED


def test_a_command_past_its_limit_is_ended_and_said(tmp_path: Path) -> None:
    ended = conversion.run([str(DIGITS), "--to", "ort", "-o", str(tmp_path / "d.ort")], [], limit=0.1)
    assert ended.code is None
    assert "not ready after" in ended.message


def test_the_sizes_of_a_report_are_those_that_were_fed() -> None:
    report = {"fed": [{"shapes": {"x": [1, 3]}}, {"shapes": {"x": [2, 3]}}]}
    assert fed_sizes({"artifacts": [{"report": report}]}) == {"x": (1, 3)}
    assert fed_sizes({}) == {}


def test_a_wrong_artefact_of_exit_0_is_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion.reality, "path", lambda key: DIGITS)
    assert conversion.convert(KEYS[0], "ort", "fp32").outcome == RIGHT
    monkeypatch.setattr(conversion, "checked", lambda *_: Check(DIFFERENT, "another number"))
    assert conversion.convert(KEYS[0], "ort", "fp32").outcome == WRONG


def test_an_artefact_that_was_not_kept_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = onnx.helper.make_node("Mul", ["x", "zero"], ["y"])
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")
    ]
    zero = numpy_helper.from_array(np.zeros(4, np.float32), "zero")
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], [zero])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    monkeypatch.setattr(conversion.reality, "path", lambda key: tmp_path / "m.onnx")
    row = conversion.convert(KEYS[0], "ort", "fp32")
    assert (row.outcome, row.code, row.size) == (UNPROVEN, 1, 0)
    assert row.check["verdict"] == SAME


def test_a_file_of_results_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def converted(key: str, to: str, precision: str) -> Row:
        seen.append(key)
        outcome = CRASHED if key == KEYS[0] and seen.count(key) == 1 else RIGHT
        return replace(ROW, key=key, to=to, precision=precision, outcome=outcome)

    monkeypatch.setattr(command, "convert", converted)
    monkeypatch.setattr(command.reality, "keys", lambda: KEYS[:3])
    options = ["--to", "ort", "--out", str(tmp_path / "r.jsonl")]
    assert command.main(options) == 1
    assert command.main(options) == 0
    assert seen == KEYS[:3]
    assert command.main([*options, "--again", "crashed"]) == 0
    assert seen == [*KEYS[:3], KEYS[0]]
    assert [row.outcome for row in command.read(tmp_path / "r.jsonl").values()] == [RIGHT] * 3


def test_an_unknown_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with pytest.raises(SystemExit):
        command.main(["--to", "ort,wasm"])


def test_causes_are_the_same_for_other_names_and_numbers() -> None:
    told = "{}.onnx cannot be converted to TFLite, {} of 9 nodes have no equivalent:\n  Loop  '{}'  'y' changes rank"

    def failed(**changes: Any) -> Row:
        return replace(ROW, outcome=REFUSED, code=3, **changes)

    first, second = (failed(message=told.format(*words)) for words in (("a", 1, "l.0"), ("b", 2, "m.7")))
    assert cause(first) == cause(second) == "Loop  NAME  NAME changes rank".replace("  ", " ")
    assert cause(failed(message="no size 3 for 'x'")) == "no size N for NAME"
    told = "it's ai.onnx.ml::Trees 't.0' of float64 in a.onnx, the model's 1.5e-3 at [0, 3]"
    assert cause(failed(message=told)) == (
        "it's ai.onnx.ml::Trees NAME of float64 in MODEL, the model's N at [SIZES]"
    )


def test_a_section_that_was_written_by_hand_stays(tmp_path: Path) -> None:
    document = tmp_path / "reality.md"
    document.write_text("# Models\n\n| a |\n\n## Unseen models\n\nfigures\n", encoding="utf-8")
    assert by_hand(document) == "\n## Unseen models\n\nfigures\n"


def test_the_page_counts_rows_and_names_causes() -> None:
    rows = [
        replace(ROW, key=KEYS[0], check={"verdict": SAME, "told": ""}),
        replace(ROW, key=KEYS[1], tries=2, options=("--shape", "x=1,8")),
        replace(ROW, key=KEYS[2], outcome=REFUSED, code=3, message="no size 3 for 'x'", size=0),
        replace(ROW, key=KEYS[3], outcome=WRONG, check={"verdict": DIFFERENT, "told": "y: 0.5 of its scale"}),
    ]
    written = page(rows)
    assert "| ORT | 4 | 2 (50 %) | 1 | 0 | 1 | 0 | 0 | 1 | 2 |" in written
    assert "- 1 refused: no size N for NAME" in written
    assert "`--shape x=1,8`" in written
    assert "**wrong**" in written
    assert sum(line.startswith(f"| {KEYS[2].removesuffix('.onnx')} ") for line in written.splitlines()) == 1
