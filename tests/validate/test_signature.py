"""Which tensor of one model is which of another: as it seems, and as the user says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.signature import SignatureMismatch, check_signatures, likely_pairs, split_map


def spec(text: str) -> TensorSpec:
    """A tensor written as name:dtype:1,?,3."""
    name, dtype, dims = text.rsplit(" ", 2)
    shape = tuple(None if dim == "?" else int(dim) if dim.isdigit() else dim for dim in dims.split(","))
    return TensorSpec(name, dtype, shape)


def specs(*texts: str) -> tuple[TensorSpec, ...]:
    return tuple(map(spec, texts))


@dataclass(frozen=True)
class Model:
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (("x float32 1,3", "y float32 1,3"), ("y float32 1,3", "x float32 1,3"), {"x": "x", "y": "y"}),
        (
            ("input_2 float32 N,3",),
            ("serving_default_input_2:0 float32 ?,3",),
            {"input_2": "serving_default_input_2:0"},
        ),
        (
            ("b_logits float32 1,9", "boxes float32 1,9"),
            ("Boxes float32 1,9", "logits float32 1,9"),
            {"b_logits": "logits", "boxes": "Boxes"},
        ),
        (
            ("x:0 float32 1,3", "x float32 1,3"),
            ("x float32 1,3", "x:0 float32 1,3"),
            {"x:0": "x:0", "x": "x"},
        ),
        (
            ("a float32 1,3", "feature float32 1,3"),
            ("features float32 1,3", "b float32 1,3"),
            {"a": "b", "feature": "features"},
        ),
        (("a float32 1,4", "b float32 1,4"), ("p float32 1,4", "q float32 1,4"), {"a": "p", "b": "q"}),
        (("a float32 1,4", "b float32 1,9"), ("p float32 1,9", "q float32 1,4"), {"a": "q", "b": "p"}),
        (("a int64 1,4", "b float32 1,4"), ("p float32 1,4", "q int64 1,4"), {"a": "q", "b": "p"}),
        (("a float32 1,4", "b float32 1,4"), ("p float32 1,4",), {"a": "p"}),
        (("a float32 1,4",), ("a float32 1,2,2",), {}),
        (("a float32 1,4",), ("a float64 1,4",), {}),
    ],
)
def test_likely_pairs_go_by_name_then_likeness_then_place(
    ours: tuple[str, ...], theirs: tuple[str, ...], expected: dict[str, str]
) -> None:
    found = {our.name: their.name for our, their in likely_pairs(specs(*ours), specs(*theirs))}
    assert found == expected


REFERENCE = Model(specs("x float32 N,4"), specs("StatefulPartitionedCall:0 float32 N,2", "z int64 N"))


def mismatch(candidate: Model) -> SignatureMismatch:
    with pytest.raises(SignatureMismatch) as caught:
        check_signatures(REFERENCE, candidate, ("a.onnx", "b.tflite"))
    return caught.value


def test_another_naming_shows_both_sides_and_the_options_that_map_them() -> None:
    error = mismatch(Model(specs("my input float32 1,4"), specs("z int64 1", "out float32 1,2")))
    assert [" ".join(row.split()) for row in error.rows] == [
        "a.onnx b.tflite",
        "input x: float32[N, 4] my input: float32[1, 4]",
        "output StatefulPartitionedCall:0: float32[N, 2] out: float32[1, 2]",
        "output z: int64[N] z: int64[1]",
    ]
    assert error.fix == (
        "likely 'x' is 'my input', 'StatefulPartitionedCall:0' is 'out'; "
        "if so, give --map 'x=my input' --map StatefulPartitionedCall:0=out"
    )


def test_what_no_map_can_mend_offers_none() -> None:
    error = mismatch(Model(specs("image float32 1,4"), specs("z float32 1", "w float32 1,9")))
    assert "--map" not in str(error)
    assert error.fix.startswith("likely 'x' is 'image', but the others do not fit; export both")
    assert [" ".join(row.split()) for row in error.rows][2:] == [
        "output StatefulPartitionedCall:0: float32[N, 2] w: float32[1, 9]",
        "output z: int64[N] z: float32[1]",
    ]


def test_tensors_that_one_side_has_alone_stand_beside_a_dash() -> None:
    error = mismatch(Model(specs("x float32 N,4"), specs("StatefulPartitionedCall:0 float32 N,2")))
    assert error.rows[-1].split() == ["output", "z:", "int64[N]", "-"]
    extra = Model((*REFERENCE.inputs, spec("k int64 1")), REFERENCE.outputs)
    assert mismatch(extra).rows[2].split() == ["input", "-", "k:", "int64[1]"]


CANDIDATE = Model(specs("t float32 N,4", "u float32 N,4"), specs("t float32 N,2", "v float32 N,2"))
PAIR = Model(specs("x float32 N,4", "y float32 N,4"), specs("p float32 N,2", "q float32 N,2"))


def test_a_map_is_of_inputs_and_outputs_even_where_a_candidate_gives_both_one_name() -> None:
    given = {"x": "t", "y": "u", "p": "t", "q": "v"}
    assert split_map(given, PAIR, CANDIDATE, ("a", "b")) == ({"x": "t", "y": "u"}, {"p": "t", "q": "v"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"w": "t"}, "--map names the tensor 'w', which a.onnx does not have; it has 'x', 'y', 'p', 'q'"),
        ({"x": "v"}, "--map names the input 'v', which b.onnx does not have; it has 't', 'u'"),
        ({"x": "t", "y": "t"}, "--map gives the input 't' of b.onnx two names"),
    ],
)
def test_a_map_that_cannot_be_meant_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_map(given, PAIR, CANDIDATE, ("a.onnx", "b.onnx"))
    assert str(caught.value).startswith(words)


def test_a_map_may_not_give_two_tensors_one_name() -> None:
    with pytest.raises(
        UsageError, match="gives two inputs of b the name 'x'; map the candidate's own 'x' as well"
    ):
        split_map({"x": "y"}, PAIR, PAIR, ("a", "b"))


def test_a_declared_rank_that_the_answers_contradict_does_not_count(tmp_path: Path) -> None:
    """As PyTorch declares the result of a squeeze that takes nothing out."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 4] x, int64[K] sizes) => (float[A, B] y)
        { y = Reshape (x, sizes) }"""
    right = text.replace("float[A, B] y", "float[A, B, C] y")
    for name, written in (("a", text), ("b", right)):
        onnx.save(onnx.parser.parse_model(written), tmp_path / f"{name}.onnx")
    sizes = np.array([2, 2, -1], np.int64)
    np.savez(
        tmp_path / "in.npz",
        x=np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
        sizes=sizes,
    )
    for candidate in ("b", "a"):  # a copy declares what its source does
        report = onnxport.validate_model(
            tmp_path / "a.onnx", tmp_path / f"{candidate}.onnx", inputs=tmp_path / "in.npz"
        )
        assert report.verdict == "proven"
