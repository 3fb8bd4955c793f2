"""A Softmax that rounding turns is noise; one that it cannot turn is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.comparison import compare
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.rounded_model import round_model
from onnxport.validate.softmax_decisions import Decision, find_decisions
from onnxport.validate.tolerance import Noise, Tolerance, measure_noise
from tests.converters.coreml.packages import convert

Array = np.ndarray[Any, np.dtype[Any]]
LAST = Decision("z", 1, flattens=False)


def parsed(text: str, opset: int = 17) -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    return Model(onnx_ir.from_proto(proto))


def softmax(rows: Array) -> Array:
    shares = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def test_a_lead_within_the_noise_may_turn_and_a_larger_one_may_not() -> None:
    logits = np.array([[1000.0, 990.0, 0.0, -5.0]])
    moved = logits + np.array([[0.0, 6.0, 1.0, 0.0]])
    assert LAST.noise(logits, moved).largest > 0.8
    lead = np.array([[50.0, 0.0, 0.0, 0.0]])
    assert LAST.noise(logits + lead, moved + lead).largest == 0
    assert LAST.noise(np.where(logits > 995, np.inf, logits), moved).largest == 0


def test_what_may_move_is_what_a_softmax_makes_of_twice_the_noise() -> None:
    logits, step = np.array([[0.3, 0.1]]), 0.15
    moved = logits + np.array([[0.0, step]])
    turned = softmax(logits + np.array([[0.0, 2 * step]])) - softmax(logits)
    assert LAST.noise(logits, moved).largest == pytest.approx(float(np.abs(turned).max()), rel=1e-6)


@pytest.mark.parametrize(
    ("opset", "axis", "expected"), [(17, 1, (1, False)), (17, -1, (2, False)), (11, 1, (1, True))]
)
def test_the_axes_are_those_of_the_opset(opset: int, axis: int, expected: tuple[int, bool]) -> None:
    text = f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ z = Relu(x) y = Softmax <axis = {axis}> (z) }}"
    assert find_decisions(parsed(text, opset)) == {"y": Decision("z", *expected)}
    logits = np.zeros((2, 3, 4))
    noise = Decision("z", *expected).noise(logits, logits + np.arange(24).reshape(2, 3, 4) % 5)
    assert noise.largest > 0.1


def test_a_right_rounding_that_decides_otherwise_is_no_fault() -> None:
    """Forty more roundings of one model, each a right float16 artefact: none is beyond what two probes tell."""
    rng = np.random.default_rng(3)
    source = parsed(
        "g (float[1, 12, 16] x, float[16, 30] w, float[1] k) => (float[1, 12, 30] y) {"
        "d = Sub(x, k) m = MatMul(d, w) z = Mul(m, k) y = Softmax <axis = -1> (z) }"
    )
    feeds = {
        "x": (100 + rng.standard_normal((1, 12, 16))).astype(np.float32),
        "w": rng.standard_normal((16, 30)).astype(np.float32),
        "k": np.full(1, 100, np.float32),
    }

    def run(model: Model | None, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert model is not None
        with OrtRuntime.of_model(model) as runtime:
            return runtime.run(dict(feeds), taps=["z"])

    def moved(seed: int) -> dict[str, Array]:
        signs = np.random.default_rng(seed)
        return run(
            round_model(source, "float16"),
            {
                name: (each * (1 + signs.integers(-1, 2, each.shape) / 2**11)).astype(np.float32)
                for name, each in feeds.items()
            },
        )

    nearest, other = run(round_model(source, "float16"), feeds), moved(0)
    plain = {"y": measure_noise(nearest["y"], [run(source, feeds)["y"], other["y"]])}
    decided = find_decisions(source)["y"]
    own = decided.noise(nearest[decided.logits], other[decided.logits])
    told = {"y": plain["y"].combine(own, 1.0)}
    tolerance = Tolerance(16, precision="float16")

    def faults(noise: Mapping[str, Noise]) -> int:
        answers = (moved(seed)["y"] for seed in range(1, 41))
        return sum(
            bool(compare("y", nearest["y"], answer, noise["y"], tolerance).fault) for answer in answers
        )

    assert faults(plain) > 0
    assert faults(told) == 0
    wrong = np.roll(nearest["y"], 1, axis=-1)
    assert compare("y", nearest["y"], wrong, told["y"], tolerance).fault


DARK = """g (float[1, 3, 16, 16] x) => (float[1, 4] y) <float[1, 4] w = {{1, 2, 3, 4}}, float zero = {{0}},
    float high = {{0.1}}, float hundred = {{100}}, float tenth = {{0.1}}> {{
    m = ReduceMean <axes = [1, 2, 3], keepdims = 0> (x) a = Clip(m, zero, high) n = Neg(m) d = Sub(n, tenth)
    r = Relu(d) s = Mul(r, hundred) t = Add(a, s) {end} }}"""


def test_a_float16_package_that_the_planned_sets_do_not_prove_gets_further_ones(tmp_path: Path) -> None:
    """Its answer moves where pictures are dark alone, which only those in -1..1 are; and it rounds in another order."""
    path, package = tmp_path / "reference.onnx", tmp_path / "m.mlpackage"
    parsed(DARK.format(end="u = Add(t, hundred) y = Mul(u, w)")).save(path)
    convert(
        parsed(DARK.format(end="p = Mul(t, w) q = Mul(hundred, w) y = Add(p, q)")), package, precision="fp16"
    )
    with Judge(Artifact.open(path), ValidateParams()) as judge:
        report = judge.verdict(Artifact.open(package))
    assert report.verdict == "proven"
    assert report.candidate.precision == "float16"
    assert any("soft" in each.label for each in report.fed)
