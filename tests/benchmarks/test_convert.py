"""The benchmark's own arithmetic: intervals, and answers paired whatever a tool did to names and axes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.artefacts import Examination
from benchmarks.commands import run_command
from benchmarks.convert import Subject
from benchmarks.figures import Interval
from benchmarks.matching import Match, match_inputs, match_outputs, permutations_between
from benchmarks.onnx2tf import Onnx2tf, PeerMissing
from benchmarks.report import OURS, Comparison, Conversion, Report, summarize_conversions, verdict_on


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_interval_of_equal_values_is_a_point():
    assert Interval.of([1.5] * 20) == Interval(1.5, 1.5, 1.5)


def test_interval_holds_the_true_median_about_as_often_as_it_says(random):
    true = math.exp(0.0)  # of a lognormal: a long tail, as timings have
    intervals = [Interval.of(list(random.lognormal(0.0, 0.5, 25)), seed=seed) for seed in range(100)]
    held = sum(interval.low <= true <= interval.high for interval in intervals)
    assert 88 <= held <= 100


def test_interval_narrows_with_more_values(random):
    few, many = (Interval.of(list(random.normal(1.0, 0.1, size))) for size in (20, 500))
    assert few.low < few.median < few.high
    assert many.high - many.low < (few.high - few.low) / 2


def test_interval_is_the_same_for_the_same_values(random):
    values = list(random.normal(1.0, 0.1, 30))
    assert Interval.of(values) == Interval.of(values)


def test_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        Interval.of([])


def test_channels_last_is_the_likeliest_permutation_where_height_equals_width():
    assert permutations_between((1, 3, 8, 8), (1, 8, 8, 3)) == [(0, 2, 3, 1), (0, 3, 2, 1)]


def test_unchanged_is_the_likeliest_permutation_of_equal_shapes():
    assert permutations_between((1, 4, 4), (1, 4, 4))[0] == (0, 1, 2)


def test_other_sizes_have_no_permutation():
    assert permutations_between((1, 1000, 1, 1), (1, 1000)) == []


def test_inputs_are_matched_by_name_before_shape():
    matches = match_inputs({"a": (1, 3, 4, 5), "b": (1, 4, 5, 3)}, {"b": (1, 4, 5, 3), "x": (1, 4, 5, 3)})
    assert {name: ways[0] for name, ways in matches.items()} == {
        "a": ("x", (0, 2, 3, 1)),
        "b": ("b", (0, 1, 2, 3)),
    }


def test_an_input_of_no_fitting_shape_is_refused():
    with pytest.raises(ValueError, match=r"no input for a \[1, 3\], only x \[1, 4\]"):
        match_inputs({"a": (1, 3)}, {"x": (1, 4)})


def test_renamed_reordered_and_permuted_outputs_are_found(random):
    references = [
        {"boxes": random.normal(size=(1, 4, 6, 6)), "scores": random.normal(size=(1, 4, 6, 6))}
        for _ in range(2)
    ]
    answers = [
        {"Identity": r["scores"].transpose(0, 3, 2, 1) + 1e-6, "Identity_1": r["boxes"].transpose(0, 2, 3, 1)}
        for r in references
    ]
    boxes, scores = match_outputs(references, answers)
    assert (boxes.output, boxes.tensor, boxes.permutation, boxes.error) == (
        "boxes",
        "Identity_1",
        (0, 2, 3, 1),
        0,
    )
    assert (scores.output, scores.tensor, scores.permutation) == ("scores", "Identity", (0, 3, 2, 1))
    assert scores.error == pytest.approx(1e-6)
    assert scores.scale == max(np.abs(r["scores"]).max() for r in references)


def test_the_error_is_the_largest_over_all_samples():
    (match,) = match_outputs(
        [{"y": np.array([2.0])}, {"y": np.array([4.0])}], [{"z": np.array([2.0])}, {"z": np.array([3.0])}]
    )
    assert (match.error, match.relative) == (1.0, 0.25)


def test_a_constant_answer_is_wrong():
    (match,) = match_outputs([{"y": np.array([[0.1, 0.9]])}], [{"y": np.array([[1.0, 1.0]])}])
    assert not Examination(1, 0, 0.1, worst=match).right


@pytest.mark.parametrize(
    ("expected", "found", "error"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([1.0, 1.0], [np.nan, 1.0], math.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], math.inf),
    ],
)
def test_nan_and_infinity_are_right_only_where_both_have_them(expected, found, error):
    (match,) = match_outputs([{"y": np.array(expected)}], [{"y": np.array(found)}])
    assert match.error == error


def test_an_output_that_nothing_fits_is_wrong_whatever_else_fits():
    y, z = match_outputs(
        [{"y": np.zeros((2, 3)), "z": np.ones(4)}], [{"z": np.ones(4), "other": np.zeros((5,))}]
    )
    assert (y.tensor, y.error) == (None, math.inf)
    assert (z.tensor, z.error) == ("z", 0.0)
    assert verdict_on(Examination(1, 0, 0.1, worst=y)) == "WRONG: nothing has the shape of y"


def test_integers_are_compared_without_overflow():
    (match,) = match_outputs([{"y": np.array([255], np.uint8)}], [{"y": np.array([0], np.uint8)}])
    assert match.error == 255.0


RIGHT = Examination(10, 1, 0.5, worst=Match("y", "y", (0,), 0.0, 1.0))
WRONG = Examination(10, 1, 0.5, worst=Match("y", "y", (0,), 1.0, 1.0))
REFUSED = Examination(10, 1, 0.5, refused="unresolved custom op: ONNX_CONV")


def test_only_models_that_both_made_something_of_enter_the_medians():
    found = [
        Conversion("a", OURS, (1.0, 3.0, 2.0), (1.0,), RIGHT),
        Conversion("a", "flatbuffer_direct", (4.0, 4.0, 9.0), (4.0,), RIGHT),
        Conversion("b", OURS, (1.0,), (1.0,), RIGHT),
        Conversion("b", "flatbuffer_direct", (0.1,), (0.1,), failure="exit 1: crashed at once"),
    ]
    assert summarize_conversions(found) == {
        OURS: {"models": 2, "right": 2},
        "flatbuffer_direct": {
            "models": 2,
            "right": 1,
            "compared on": 1,
            "its median seconds": 4.0,
            "our median seconds": 2.0,
            "median of ours / its": 0.5,
        },
    }


@pytest.mark.parametrize(
    ("ours", "theirs"), [(RIGHT, WRONG), (WRONG, RIGHT), (RIGHT, REFUSED), (RIGHT, None)]
)
def test_the_speed_of_a_wrong_answer_does_not_count(ours, theirs):
    assert Comparison("a", "flatbuffer_direct", ours, theirs).ratio is None


def test_a_report_names_the_models_on_which_ours_failed():
    report = Report("Linux", 2, {}, (0.0, 0.0, 0.0))
    report.conversions = [
        Conversion("a", OURS, (1.0,), (1.0,), RIGHT),
        Conversion("b", OURS, (1.0,), (1.0,), WRONG),
        Conversion("b", "flatbuffer_direct", (1.0,), (1.0,), REFUSED),
    ]
    assert report.ours_failed == ["b"]


def test_a_report_is_json_whatever_the_figures(tmp_path):
    missing = Examination(1, 0, 0.1, worst=Match("y", None, (), math.inf, 1.0))
    report = Report(
        "Linux", 2, {}, (0.0, 0.0, 0.0), conversions=[Conversion("a", OURS, (1.0,), (1.0,), missing)]
    )
    report.write(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert read["conversions"][0]["artefact"]["worst"] == {
        "output": "y",
        "tensor": None,
        "permutation": [],
        "error": None,
        "scale": 1.0,
    }
    assert read["summary"] == {"onnxport, conversion": {"models": 1, "right": 0}}


@pytest.mark.parametrize("python", [None, Path("does/not/exist")])
def test_a_missing_peer_is_an_error_that_says_how_to_get_it(python):
    with pytest.raises(PeerMissing, match=r"python3\.12 -m venv"):
        Onnx2tf.find(python)


def test_a_failed_command_is_quoted_by_the_line_that_names_the_error():
    script = "echo; echo 'ValueError: no such axis'; echo bye; exit 3"
    run = run_command(["sh", "-c", script])
    assert (run.made, run.said) == (False, "exit 3: ValueError: no such axis")


def test_the_peers_artefacts_of_two_models_do_not_share_a_folder():
    subjects = [Subject(key, Path("m"), {}, {}) for key in ("mtcnn/pnet.onnx", "mtcnn/rnet.onnx")]
    first, second = (subject.kept(Path("kept"), "flatbuffer_direct") for subject in subjects)
    assert first == Path("kept/mtcnn_pnet.onnx/flatbuffer_direct.tflite")
    assert first.parent != second.parent
