"""What a CPU without VNNI loses is worked out as it computes it, on any machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.quantize.cpu_safe import widen_grid
from onnxport.quantize.grids import weight_grid
from onnxport.validate import saturation
from tests import lesser_cpu
from tests.quantize import small

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
IMAGES = DIGITS.with_name("test.npz")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits in int8, for CPUs with VNNI (`vnni.onnx`) and for any (`any.onnx`), and samples."""
    folder = tmp_path_factory.mktemp("digits")
    images = np.load(IMAGES)["image"]
    (folder / "samples").mkdir()
    for number in range(10):
        np.savez(folder / "samples" / f"{number}.npz", image=images[20 * number : 20 * number + 20])
    for cpu in ("vnni", "any"):
        onnxport.quantize_model(
            DIGITS,
            "int8",
            output=folder / f"{cpu}.onnx",
            calib=folder / "samples",
            for_cpu=cpu,
            validate=False,
        )
    return folder


def test_pairs_are_added_as_vpmaddubsw_adds_them() -> None:
    """By Intel's description: neighbours along the depth, an odd last one with nothing."""
    weights = np.array([[100, 40, -90, -60, 7]], np.int8)
    assert saturation.pair_sums(weights).tolist() == [[140, -150, 7]]


def test_channels_are_innermost_along_the_depth_of_a_convolution() -> None:
    weights = np.arange(2 * 3 * 1 * 2).reshape(2, 3, 1, 2)
    assert saturation.depth_first(weights, "Conv")[0].tolist() == [0, 2, 4, 1, 3, 5]


def test_a_model_whose_sums_fit_into_16_bits_is_left_alone(tmp_path: Path) -> None:
    made = small.case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,10,10] x) => (float[n,c,h,w] y) { y = Conv (x, w) }""",
        tmp_path,
        initializers={"w": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)},
    )
    assert saturation.emulate(Model.load(made.path)) is None


_SCRIPT = """
import sys, json, numpy as np
from onnxport.formats.model import Model
from onnxport.validate import saturation
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
path, images = sys.argv[1], np.load(sys.argv[2])["image"][:8]
model, found = saturation.emulate(Model.load(path))
with OrtRuntime.of_model(model) as worked_out, OrtRuntime(model.path, RuntimeOptions(integers="cpu")) as own:
    ours, theirs = (side.run({"image": images})["logits"] for side in (worked_out, own))
with OrtRuntime(model.path) as exact:
    right = exact.run({"image": images})["logits"]
print(json.dumps([float(abs(ours - theirs).max()), float(abs(theirs - right).max()), float(abs(right).max())]))
"""


def test_it_is_what_such_a_cpu_answers(digits: Path, tmp_path: Path) -> None:
    if why := lesser_cpu.lacking():
        pytest.skip(why)
    run = lesser_cpu.run(lesser_cpu.python(tmp_path / "haswell"), "-c", _SCRIPT, digits / "vnni.onnx", IMAGES)
    assert run.returncode == 0, run.stderr[-2000:]
    difference, lost, scale = json.loads(run.stdout)
    assert lost > 0.05 * scale  # that CPU does get it wrong
    assert difference < 1e-5 * scale


def test_losses_are_the_share_of_wrong_numbers_and_their_distance_in_db() -> None:
    """Worked out by hand: a pair of uint8 times int8 is added in 16 bits, up to 32767."""
    weights = np.array([[100, 1, -128], [100, 1, -128], [1, 1, 0], [1, 1, 0]], np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", 2, [None, 4])],
        [helper.make_tensor_value_info("y", 6, [None, 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = Model(ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8)))
    # The first row saturates upwards and downwards, the third downwards alone, the others do not.
    rows = np.array([[255, 255, 1, 2], [100, 100, 9, 9], [150, 150, 0, 0], [0, 0, 255, 255]], np.uint8)
    pairs = np.stack([rows[:, at : at + 2].astype(np.int64) @ weights[at : at + 2] for at in (0, 2)])
    right = pairs.sum(0)
    lost = right - np.clip(pairs, -(2**15), 2**15 - 1).sum(0)
    assert np.argwhere(lost).tolist() == [[0, 0], [0, 2], [2, 2]]
    made = saturation.emulate(model)
    assert made is not None
    (found,) = saturation.measure_losses(*made, [{"x": rows[:1]}, {"x": rows[1:]}])
    assert (found.node, found.op, found.share) == ("product", "MatMulInteger", 3 / 12)
    assert found.sqnr_db == pytest.approx(10 * np.log10(np.square(right).sum() / np.square(lost).sum()))


def test_quantize_writes_weights_that_saturate_nowhere(digits: Path) -> None:
    feeds = [{"image": np.load(IMAGES)["image"][:40]}]
    lost = {}
    for cpu in ("vnni", "any"):
        made = saturation.emulate(Model.load(digits / f"{cpu}.onnx"))
        lost[cpu] = [] if made is None else saturation.measure_losses(*made, feeds)
    assert lost["vnni"][0].sqnr_db < 20
    assert all(each.sqnr_db > 40 for each in lost["any"])


@pytest.mark.parametrize("axis", [0, None])
def test_widened_steps_leave_no_pair_beyond_16_bits(axis: int | None) -> None:
    values = np.random.default_rng(3).normal(size=(16, 8, 3, 3)).astype(np.float32)
    grid = weight_grid(values, axis)
    node = ir.node("Conv", [None, None])
    before, after = (
        np.abs(saturation.pair_sums(saturation.depth_first(each.quantized(values), "Conv"))).max()
        for each in (grid, widen_grid(grid, values, node, np.full(8, 255)))
    )
    assert before * 255 > 2**15
    assert after * 255 < 2**15


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_that_reach_small_integers_keep_their_steps(groups: int) -> None:
    """Integers up to `largest`, weights and sums as a CPU without VNNI has them: none leaves 16 bits."""
    random = np.random.default_rng(5)
    values = random.normal(size=(16, 8, 1, 1)).astype(np.float32)
    largest = random.integers(60, 256, 8 * groups)
    grid, node = weight_grid(values, 0), ir.node("Conv", [None, None], {"group": groups})
    made = widen_grid(grid, values, node, largest)
    weights = made.quantized(values).astype(np.int64)[:, :, 0, 0]
    codes = random.integers(0, largest + 1, (2000, 8 * groups))
    codes[0] = largest
    for channel, row in enumerate(weights):
        at = channel // (16 // groups) * 8
        for signs in (row > 0, row < 0, np.ones(8, bool)):
            products = np.where(signs, codes[:, at : at + 8], 0) * row
            sums = products[:, 0::2] + products[:, 1::2]
            assert np.abs(sums).max() < 2**15
    everywhere = widen_grid(grid, values, node, np.full(8 * groups, 255))
    assert 0 < np.count_nonzero(made.scales > grid.scales) < np.count_nonzero(everywhere.scales > grid.scales)


def test_a_report_says_what_saturation_costs_and_what_avoids_it(digits: Path) -> None:
    report = onnxport.validate_model(DIGITS, digits / "vnni.onnx", inputs=digits / "samples")
    assert report.saturation is not None
    assert report.saturation.exact_db > 40
    assert report.saturation.saturated_db < 25
    assert report.saturation.nodes[0].node == "conv1"
    assert any("--for-cpu any" in note for note in report.notes)
    assert onnxport.validate_model(DIGITS, digits / "any.onnx", inputs=digits / "samples").saturation is None


def test_weights_of_a_general_matrix_product_are_read_by_rows_where_transposed(tmp_path: Path) -> None:
    """Two large neighbours along the depth, in one form beside each other and in the other below."""
    weights = np.zeros((4, 6), np.float32)
    weights[1, 2:4] = 1
    for transposed in (0, 1):
        stored = weights if transposed else weights.T
        graph = helper.make_graph(
            [helper.make_node("Gemm", ["x", "w"], ["y"], transB=transposed, name="product")],
            "g",
            [helper.make_tensor_value_info("x", 1, [3, 6])],
            [helper.make_tensor_value_info("y", 1, [3, 4])],
            [numpy_helper.from_array(np.ascontiguousarray(stored), "w")],
        )
        folder = tmp_path / str(transposed)
        folder.mkdir()
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        made = small.quantized_case(model, folder, for_cpu="vnni")
        onnx.checker.check_model(made.path)
        quantized = Model.load(made.path)
        found = saturation.emulate(quantized)
        assert found is not None
        assert [product.pairs.tolist() for product in found[1]] == [[[1, 2]]]


def test_batched_weights_are_left_alone(tmp_path: Path) -> None:
    """A product of stacks of matrices has no one depth: the correction would not fit its result."""
    weights = np.random.default_rng(7).normal(size=(2, 16, 8)).astype(np.float32)
    made = small.case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[2,5,16] x) => (float[n,r,c] y) { y = MatMul (x, w) }""",
        tmp_path,
        initializers={"w": weights},
    )
    assert made.sqnr > 25
    assert saturation.emulate(Model.load(made.path)) is None
