"""Faults in models of lower precision, judged against the float model that they were made of.

    python -m tests.faults.lowered --root FOLDER -o docs/internals/faults-lowered.md [--models digits,cls] [--precisions
    int8]

Each row makes a right file with `onnxport quantize`, puts one fault into it, measures by ONNX Runtime what the fault
costs against the float model, and asks `onnxport validate FLOAT FILE --inputs` with its defaults. What costs less than
1 dB is no row: quantization itself loses as much. Nor is a fault in a right file that loses more than the floor of
`validate` allows, which is refused without it.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from fixtures import models, samples
from onnxport.validate.quality import LEAST_SQNR
from tests import exact
from tests.faults.harness import _verdict, command
from tests.faults.surgery import Array, NoPlace, constants, one_of, own_constant, readers, replace

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "int8": ("--int8",),
    "dynamic": ("--dynamic",),
    "int8-weights": ("--int8-weights",),
    "int4-weights": ("--int4-weights",),
}
# Short name -> key of fixtures; digits lies in the repository and is fed its own test set.
MODELS: Mapping[str, str] = {
    "digits": "",
    "glyphs": samples.GLYPHS,
    "cls": "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "det": "rapidocr-v4/ch_PP-OCRv4_det_infer.onnx",
    "yunet": "yunet/face_detection_yunet_2023mar.onnx",
    "mobilenet": "mobilenetv2/mobilenetv2.onnx",
    "efficientnet": "efficientnet_lite0/efficientnet_lite0.onnx",
    "minilm": "minilm/minilm.onnx",
}
# (model, precision) of right files that lose more than `validate` allows on pictures that no calibration saw: 2.1 dB
# (of scores of faces, where no picture has one) and 4.2 dB; rounded to nearest -6.3 and 1.2 dB (2026-11-29).
LOSSY = frozenset((("yunet", "int4-weights"), ("efficientnet", "int4-weights")))
COSTLY = 1.0  # dB that a fault has to cost
_CALIBRATION, _TESTS = 16, 6
_NOTHING_TO_QUANTIZE = 3
_DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"


@dataclass(frozen=True)
class Weight:
    """A quantized constant of two axes or more in a graph.

    Attributes:
        tensor: its codes.
        scale: the constant that its steps are in; None where it cannot be told.
        axis: that of the output channels.
    """

    tensor: onnx.TensorProto
    scale: onnx.TensorProto | None
    axis: int

    @property
    def codes(self) -> Array:
        """int8 numbers, whatever they are packed in."""
        return numpy_helper.to_array(self.tensor).astype(np.int8)

    def store(self, codes: Array) -> None:
        dtype = numpy_helper.to_array(self.tensor).dtype
        replace(self.tensor, np.ascontiguousarray(codes).astype(dtype))


Fault = Callable[[onnx.ModelProto, random.Random], None]


def _weights(model: onnx.ModelProto) -> list[Weight]:
    """The quantized weights of products."""
    known, found = constants(model), list[Weight]()
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in known:
            tensor = known[node.input[0]]
            product = next(iter(readers(model, node.output[0])), None)
            if len(tensor.dims) > 1 and product is not None:
                found.append(Weight(tensor, known.get(node.input[1]), _axis(product)))
        elif node.op_type in ("MatMulInteger", "ConvInteger") and node.input[1] in known:
            found.append(Weight(known[node.input[1]], _scale_behind(model, node), _axis(node)))
    return found


def _axis(product: onnx.NodeProto) -> int:
    transposed = any(each.name == "transB" and each.i for each in product.attribute)
    return 0 if product.op_type.startswith("Conv") or transposed else 1


def _scale_behind(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.TensorProto | None:
    """What the sums of an integer product are multiplied by, as far as it is constant: Cast, Mul(scale, scale)."""
    known = constants(model)
    for cast in readers(model, node.output[0]):
        for mul in readers(model, cast.output[0]):
            other = next((name for name in mul.input if name != cast.output[0]), "")
            makers = [each for each in model.graph.node if other in each.output]
            named = [name for each in makers for name in each.input if name in known]
            if other in known or named:
                return known[other] if other in known else known[named[0]]
    return None


def _drawn(model: onnx.ModelProto, draw: random.Random, fits: Callable[[Weight], bool]) -> Weight:
    return one_of(draw, [each for each in _weights(model) if fits(each)])


def _has_channels(weight: Weight) -> bool:
    return weight.tensor.dims[weight.axis] > 1


def swapped_channels(model: onnx.ModelProto, draw: random.Random) -> None:
    """Two output channels in each other's place."""
    weight = _drawn(model, draw, _has_channels)
    one, other = draw.sample(range(weight.tensor.dims[weight.axis]), 2)
    codes = np.moveaxis(weight.codes.copy(), weight.axis, 0)
    codes[[one, other]] = codes[[other, one]]
    weight.store(np.moveaxis(codes, 0, weight.axis))


def rotated_channels(model: onnx.ModelProto, draw: random.Random) -> None:
    """Every output channel one place on."""
    weight = _drawn(model, draw, _has_channels)
    weight.store(np.roll(weight.codes, 1, weight.axis))


def weight_scale(model: onnx.ModelProto, draw: random.Random) -> None:
    """All steps of a weight 1.3 times as large."""
    scale = _drawn(model, draw, lambda each: each.scale is not None).scale
    assert scale is not None
    replace(scale, numpy_helper.to_array(scale) * np.float32(1.3))


def channel_scale(model: onnx.ModelProto, draw: random.Random) -> None:
    """The step of one channel 4 times as large."""
    scale = _drawn(model, draw, lambda each: each.scale is not None and math.prod(each.scale.dims) > 1).scale
    assert scale is not None
    values = numpy_helper.to_array(scale).copy()
    values.reshape(-1)[draw.randrange(values.size)] *= 4
    replace(scale, values)


def flipped_signs(model: onnx.ModelProto, draw: random.Random) -> None:
    """One output channel negative."""
    weight = _drawn(model, draw, _has_channels)
    codes = np.moveaxis(weight.codes.copy(), weight.axis, 0)
    channel = draw.randrange(len(codes))
    codes[channel] = np.clip(-codes[channel].astype(np.int16), codes.min(), codes.max())
    weight.store(np.moveaxis(codes, 0, weight.axis))


def transposed(model: onnx.ModelProto, draw: random.Random) -> None:
    """A square weight with its input and output channels exchanged."""

    def is_square(each: Weight) -> bool:
        return len(each.tensor.dims) >= 2 and each.tensor.dims[0] == each.tensor.dims[1] > 1

    weight = _drawn(model, draw, is_square)
    weight.store(weight.codes.swapaxes(0, 1))


def dropped_bias(model: onnx.ModelProto, draw: random.Random) -> None:
    """A bias of zeros: quantized, or a float constant that a product adds."""
    known = constants(model)
    stored = [
        known[node.input[0]]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] in known
        and known[node.input[0]].data_type == onnx.TensorProto.INT32
    ]
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) > 2 and node.input[2] in known:
            stored.append(known[node.input[2]])
        if node.op_type == "Add":
            stored += [
                known[name] for name in node.input if name in known and math.prod(known[name].dims) > 1
            ]
    tensor = one_of(draw, [each for each in stored if numpy_helper.to_array(each).any()])
    replace(tensor, np.zeros_like(numpy_helper.to_array(tensor)))


def _activations(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    known = constants(model)
    return [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] not in known and node.input[1] in known
    ]


def activation_scale(model: onnx.ModelProto, draw: random.Random) -> None:
    """The step of an activation half as large, on the way back to float."""
    node = one_of(draw, _activations(model))
    scale = own_constant(model, node, 1)
    replace(scale, numpy_helper.to_array(scale) / np.float32(2))


def activation_range(model: onnx.ModelProto, draw: random.Random) -> None:
    """An activation's range half as wide on both ways: what lies beyond is cut off."""
    node = one_of(draw, _activations(model))
    for each in [each for each in model.graph.node if node.input[0] in (*each.output, *each.input)]:
        if each.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = own_constant(model, each, 1)
            replace(scale, numpy_helper.to_array(scale) / np.float32(2))


def zero_point(model: onnx.ModelProto, draw: random.Random) -> None:
    """A zero point off by 8 on the way back to float: an activation's, or a weight's where these are float."""
    known = constants(model)
    places = [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and len(node.input) > 2 and node.input[2] in known
    ]
    computed = [node for node in places if node.input[0] not in known]
    node = one_of(draw, computed or [each for each in places if _has_room(known[each.input[2]])])
    point = own_constant(model, node, 2)
    values = numpy_helper.to_array(point)
    info = np.iinfo(values.dtype)
    replace(point, np.where(values > info.max - 8, values - 8, values + 8).astype(values.dtype))


def _has_room(point: onnx.TensorProto) -> bool:
    return point.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


FAULTS: tuple[Fault, ...] = (
    *(swapped_channels, rotated_channels, weight_scale, channel_scale, flipped_signs),
    *(transposed, dropped_bias, activation_scale, activation_range, zero_point),
)


# ---- making, measuring, asking


@dataclass(frozen=True)
class Row:
    """One fault in one file.

    Attributes:
        draw: which of the places where it can be.
    """

    model: str
    precision: str
    fault: str
    draw: int = 0

    def __str__(self) -> str:
        return f"{self.fault} in {self.model} {self.precision} {self.draw}"


@dataclass(frozen=True)
class Outcome:
    """What came of a row: the SQNRs of the right and the faulty file in dB, and what `validate` said.

    Attributes:
        fault: its name; empty for a right file.
    """

    row: str
    precision: str
    fault: str
    right: float
    wrong: float
    found: bool
    verdict: str
    reason: str

    @property
    def cost(self) -> float:
        return self.right - self.wrong

    @property
    def is_lossy(self) -> bool:
        """Whether `validate` refuses the right file for what it loses, and for nothing else."""
        return not self.fault and self.verdict == "over budget" and self.right < LEAST_SQNR


@dataclass(frozen=True)
class Place:
    """A model with its samples below a folder."""

    source: Path
    calibration: Path
    tests: Path


@cache
def place(name: str, root: Path) -> Place:
    """The float model and samples, written once."""
    folder = root / name
    calibration, tests = folder / "calibration", folder / "tests"
    if MODELS[name]:
        if not tests.exists():
            samples.write(MODELS[name], calibration, "calibration", _CALIBRATION)
            samples.write(MODELS[name], tests, "test", _TESTS)
        key = MODELS[name]
        return Place(
            _DIGITS.parents[0] / key if key == samples.GLYPHS else models.path(key), calibration, tests
        )
    images = np.load(_DIGITS / "test.npz")["image"]
    for part, chosen in ((calibration, images[:200]), (tests, images[200:360])):
        part.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(np.split(chosen, len(chosen) // 20)):
            np.savez(part / f"{number:03}.npz", image=image)
    return Place(_DIGITS / "digits.onnx", calibration, tests)


@cache
def right(name: str, precision: str, root: Path) -> Path:
    """The file that `onnxport quantize` makes; NoPlace where it has nothing to make of this model."""
    where = place(name, root)
    output = root / name / f"{precision}.onnx"
    if not output.exists():
        options: Sequence[object] = PRECISIONS[precision]
        calib = ("--calib", where.calibration) if precision != "dynamic" else ()
        run = command("quantize", where.source, *options, *calib, "-o", output, "--no-validate")
        if run.returncode == _NOTHING_TO_QUANTIZE:
            raise NoPlace
        assert run.returncode == 0, run.stderr
    return output


@cache
def _answers(path: Path, tests: Path) -> list[dict[str, Array]]:
    return _run(path.read_bytes(), tests)


def _run(model: bytes, tests: Path) -> list[dict[str, Array]]:
    session = onnxruntime.InferenceSession(
        exact.saved(model), exact.options(), providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]
    taken = {each.name for each in session.get_inputs()}
    found = []
    for path in sorted(tests.iterdir()):
        with np.load(path) as arrays:
            feeds = {name: arrays[name] for name in arrays.files if name in taken}
        found.append(dict(zip(names, session.run(names, feeds), strict=True)))
    return found


def sqnr(wanted: Sequence[Mapping[str, Array]], given: Sequence[Mapping[str, Array]]) -> float:
    """dB of the worst output over all samples."""
    found = []
    for name in wanted[0]:
        ours, theirs = (np.concatenate([each[name].ravel() for each in side]) for side in (wanted, given))
        signal, noise = (
            np.square(ours, dtype=np.float64).sum(),
            np.square(theirs - ours).sum(dtype=np.float64),
        )
        found.append(10 * math.log10(signal / noise) if noise and signal else 200.0)
    return min(found)


def judge(row: Row, root: Path) -> Outcome | None:
    """What came of a row; None where its fault has no place, costs less than 1 dB, or is in a file that is lossy."""
    fault = next(each for each in FAULTS if getattr(each, "__name__", "") == row.fault)
    where = place(row.model, root)
    try:
        good = right(row.model, row.precision, root)
        broken = onnx.load(good)
        fault(broken, random.Random(str(row)))
    except NoPlace:
        return None
    wanted = _answers(where.source, where.tests)
    own = sqnr(wanted, _answers(good, where.tests))
    other = sqnr(wanted, _run(broken.SerializeToString(), where.tests))
    if own < LEAST_SQNR or own - other < COSTLY:
        return None
    path = root / row.model / "broken.onnx"
    onnx.save(broken, path)
    return _asked(str(row), row.precision, row.fault, where, path, own, other)


def judge_right(name: str, precision: str, root: Path) -> Outcome | None:
    """What is said of the right file; None where there is none."""
    where = place(name, root)
    try:
        good = right(name, precision, root)
    except NoPlace:
        return None
    own = sqnr(_answers(where.source, where.tests), _answers(good, where.tests))
    return _asked(f"right {name} {precision}", precision, "", where, good, own, own)


def _asked(
    row: str, precision: str, fault: str, where: Place, candidate: Path, own: float, other: float
) -> Outcome:
    run = command("validate", where.source, candidate, "--inputs", where.tests, "--json")
    verdict, reason = _verdict(run)
    return Outcome(row, precision, fault, own, other, run.returncode != 0, verdict, reason)


def rows(names: Sequence[str], precisions: Sequence[str], draws: int) -> Iterator[Row]:
    for name in names:
        for precision in precisions:
            for fault in FAULTS:
                for draw in range(draws):
                    yield Row(name, precision, getattr(fault, "__name__", ""), draw)


def main() -> None:
    """Runs what the command line asks for, and prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.lowered")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--root", type=Path, required=True, help="folder for models and samples, kept")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    names, precisions = given.models.split(","), given.precisions.split(",")
    outcomes = []
    for name in names:
        for precision in precisions:
            outcomes.append(judge_right(name, precision, given.root))
            _tell(outcomes[-1])
        for row in rows((name,), precisions, given.draws):
            outcomes.append(judge(row, given.root))
            _tell(outcomes[-1])
    text = page([each for each in outcomes if each is not None], names)
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    print(text)


def page(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """The outcomes on the models `names` as a page of docs."""
    faults = [each for each in outcomes if each.fault]
    refused = [each.row for each in outcomes if not each.fault and each.found and not each.is_lossy]
    lossy = [f"{each.row.removeprefix('right ')} ({each.right:.1f} dB)" for each in outcomes if each.is_lossy]
    found = sum(each.found for each in faults)
    lines = [
        *("# Faults in models of lower precision", ""),
        "Faults in files of `onnxport quantize`, one at a time, compared with the float model by `onnxport",
        "validate FLOAT FILE --inputs DIR` with its defaults, in a separate process. Faults that cost less",
        "than 1 dB are left out. The harness writes this page:",
        "",
        f"    python -m tests.faults.lowered --root FOLDER --models {','.join(names)} \\",
        "        -o docs/internals/faults-lowered.md",
        "",
        f"Models: {', '.join(MODELS[name] or 'digits' for name in names)}.",
        f"Run on {date.today():%Y-%m-%d}. What the proof of quantized files looks at: [translation](translation.md).",
        "",
        f"Found: {found} of {len(faults)}. Correct files refused: {', '.join(refused) or 'none'}, of "
        f"{sum(not each.fault for each in outcomes)}.",
        *(
            ("", f"Refused for a loss below {LEAST_SQNR:g} dB and left out: {', '.join(lossy)}.")
            if lossy
            else ()
        ),
        *("", f"| fault | {' | '.join(PRECISIONS)} |", "|---|" + "---|" * len(PRECISIONS)),
    ]
    for fault in dict.fromkeys(each.fault for each in faults):
        cells = [
            [each.found for each in faults if (each.fault, each.precision) == (fault, precision)]
            for precision in PRECISIONS
        ]
        said = [f"{sum(cell)} of {len(cell)}" if cell else "" for cell in cells]
        lines.append(f"| {fault.replace('_', ' ')} | {' | '.join(said)} |")
    missed = [each for each in faults if not each.found]
    lines += ["", "Not found:", ""] if missed else []
    lines += [f"- {each.row}: {each.right:.1f} dB became {each.wrong:.1f} dB" for each in missed]
    return "\n".join(lines) + "\n"


def _tell(outcome: Outcome | None) -> None:
    if outcome is None:
        return
    said = "found" if outcome.found else "passed"
    print(
        f"{said:6} {outcome.right:6.1f} -> {outcome.wrong:6.1f} dB  {outcome.row:48} {outcome.reason[:110]}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
