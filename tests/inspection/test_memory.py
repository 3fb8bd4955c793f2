"""The static plan against what ONNX Runtime and LiteRT say of their own memory, and against published work."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnxport
from fixtures import models
from onnxport.core.errors import UsageError
from onnxport.inspection.memory import MemoryPlan, plan_memory
from tests.inspection.memory_figures import feeds_of, litert_arena, ort_peak

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
REAL = (
    *("age-gender/gender-v1.onnx", "mtcnn/onet.onnx", "mtcnn/rnet.onnx", "qonnx/model.onnx"),
    *("qonnx/subpixel_float_model.onnx", "yunet/face_detection_yunet_2023mar.onnx"),
    *("mobilenetv2/mobilenetv2.onnx", "nudenet/320n.onnx", "light/squeezenet", "light/shufflenet"),
)
WITHIN = 0.1


def test_a_plan_of_digits_is_what_onnx_runtime_allocates(tmp_path: Path) -> None:
    plan = plan_memory(DIGITS)
    assert plan.peak == ort_peak(DIGITS, feeds_of({"image": (1, 1, 8, 8)}), tmp_path)
    assert plan.peak_node == "bn2"
    # Convolutions of 3 x 3 over 8 x 8 pixels, 1 to 16 and 16 to 32 channels, and 512 x 10.
    assert plan.macs == 64 * 9 * 16 + 64 * 9 * 16 * 32 + 512 * 10
    check(plan)


@pytest.mark.real
@pytest.mark.parametrize("key", REAL)
def test_the_peak_is_onnx_runtime_s(key: str, tmp_path: Path) -> None:
    path, shapes = models.path(key), models.shapes(key)
    plan = plan_memory(path, shapes)
    assert plan.peak == pytest.approx(ort_peak(path, feeds_of(shapes), tmp_path), rel=WITHIN)
    check(plan)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    "key", [key for key in REAL if "/" in key and not key.startswith(("light", "nudenet"))]
)
def test_the_arena_is_litert_s(key: str, tmp_path: Path) -> None:
    made = tmp_path / "model.tflite"
    onnxport.convert_model(models.path(key), "tflite", made, validate=False, shape=models.shapes(key))
    plan = plan_memory(made)
    assert plan.arena == litert_arena(made)
    check(plan)


def test_the_arena_of_digits_is_litert_s(tmp_path: Path) -> None:
    made = tmp_path / "digits.tflite"
    onnxport.convert_model(DIGITS, "tflite", made, validate=False)
    plan = plan_memory(made)
    assert plan.arena == litert_arena(made)
    assert plan.macs == plan_memory(DIGITS).macs
    check(plan)


@pytest.mark.real
def test_work_of_mobilenet_is_the_published_one() -> None:
    """300 million multiply-adds (Sandler et al., MobileNetV2, table 4)."""
    plan = plan_memory(models.mobilenetv2(), models.shapes("mobilenetv2/mobilenetv2.onnx"))
    assert plan.macs == pytest.approx(300e6, rel=0.01)


def test_an_open_size_is_asked_for(tmp_path: Path) -> None:
    path = relu_of(tmp_path, ["N", 3, "H", "W"])
    with pytest.raises(UsageError, match=r"open sizes") as error:
        plan_memory(path)
    assert "--shape x=1,3,SIZE,SIZE" in str(error.value.fix)
    assert plan_memory(path, {"x": (1, 3, 4, 4)}).outputs == 3 * 16 * 4


def test_a_value_without_a_size_is_named(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["found"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("found", TensorProto.INT64, [2, None])],
    )
    path = tmp_path / "nonzero.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert plan_memory(path).unsized == ("found",)


def relu_of(folder: Path, shape: list[str | int]) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = folder / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check(plan: MemoryPlan) -> None:
    """No two buffers that hold values at one time overlap, and the block has room for all."""
    for place, one in enumerate(plan.buffers):
        assert one.offset % 64 == 0
        assert one.offset + one.size <= plan.arena
        for other in plan.buffers[:place]:
            together = one.first <= other.last and other.first <= one.last
            apart = one.offset + one.size <= other.offset or other.offset + other.size <= one.offset
            assert apart or not together, (one.names, other.names)
    assert plan.peak == max(node.live for node in plan.nodes) <= plan.arena
