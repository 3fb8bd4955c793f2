"""Which inputs are fed back: by the user's word, the graph, or the names."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from fixtures import models
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.states import find_states, given_states, growing


def specs(*rows: tuple[str, tuple[Dim, ...]]) -> list[TensorSpec]:
    return [TensorSpec(name, "float32", shape) for name, shape in rows]


X = ("x", ("N", 16))


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        ([("state", (2, "N", 8))], [("y", ("N",)), ("stateN", (None, None, None))], {"state": "stateN"}),
        (
            [("h", (1, 1, 8)), ("c", (1, 1, 8))],
            [("hn", (1, 1, 8)), ("cn", (1, 1, 8))],
            {"h": "hn", "c": "cn"},
        ),
        ([("h0", (1, 8)), ("c0", (1, 8))], [("h_n", (1, 8)), ("c_n", (1, 8))], {"h0": "h_n", "c0": "c_n"}),
        ([("prev_hidden", (1, 8))], [("new_hidden", (1, 8))], {"prev_hidden": "new_hidden"}),
        ([("cache_in", (1, 8))], [("cache_out", (1, 8))], {"cache_in": "cache_out"}),
        (
            [("conv_cache", (1, 8)), ("tra_cache", (1, 8))],
            [("conv_cache_out", (1, 8)), ("tra_cache_out", (1, 8))],
            {"conv_cache": "conv_cache_out", "tra_cache": "tra_cache_out"},
        ),
        (
            [("encoder_h1", (1, 8)), ("encoder_h2", (1, 8))],
            [("encoder_hn1", (1, 8)), ("encoder_hn2", (1, 8))],
            {"encoder_h1": "encoder_hn1", "encoder_h2": "encoder_hn2"},
        ),
        # Not a state: another size, another name, nothing that says state, or a cache that grows.
        ([("state", (1, 8))], [("stateN", (1, 9))], {}),
        ([("h", (1, 8))], [("cn", (1, 8))], {}),
        ([("image", (1, 8))], [("image_out", (1, 8))], {}),
        ([("input", (1, 8))], [("output", (1, 8))], {}),
        ([("past_key_values.0.key", (1, "P", 8))], [("present.0.key", (1, "P + 1", 8))], {}),
    ],
)
def test_names_and_shapes_tell_pairs(
    inputs: list[tuple[str, tuple[Dim, ...]]],
    outputs: list[tuple[str, tuple[Dim, ...]]],
    found: dict[str, str],
) -> None:
    assert find_states(None, specs(X, *inputs), specs(*outputs)) == found


def test_a_model_of_nothing_but_states_has_nothing_to_feed() -> None:
    assert find_states(None, specs(("state", (1, 8))), specs(("stateN", (1, 8)))) == {}


def test_the_two_ends_of_a_recurrent_operator_are_a_pair_whatever_they_are_called() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (float[3, 1, 4] x, float[1, 5] p, float[1, 5] q, float[1, 20, 4] w, float[1, 20, 5] r)
            => (float[3, 1, 1, 5] y, float[1, 5] a, float[1, 5] b) <int64[1] zero = {0}>
        { h = Unsqueeze (p, zero) c = Unsqueeze (q, zero)
          y, hn, cn = LSTM <hidden_size = 5> (x, w, r, , , h, c)
          a = Squeeze (cn, zero) b = Squeeze (hn, zero) }"""
    model = Model(ir.from_proto(onnx.parser.parse_model(text)))
    assert find_states(model, model.inputs, model.outputs) == {"p": "b", "q": "a"}


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "pairs"),
    [
        ("silero-vad/silero_vad.onnx", {"state": "stateN"}),
        ("silero-vad/silero_vad_16k_sequence.onnx", {"h": "hn", "c": "cn"}),
        ("g2p-id-py/decoder_model.onnx", {"input_3": "lstm_1", "input_4": "lstm_1_1"}),
        ("g2p-id-py/encoder_model.onnx", {}),
        ("minilm-int8/model.onnx", {}),
        ("qonnx/nn_resize_float_model.onnx", {}),
    ],
)
def test_real_models(key: str, pairs: dict[str, str]) -> None:
    model = Model.load(models.path(key))
    assert find_states(model, model.inputs, model.outputs) == pairs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": "hn"}, r"--state hidden=hn: no input 'hidden'; the inputs are 'x', 'h', 'c'"),
        ({"h": "state"}, r"--state h=state: no output 'state'; the outputs are 'y', 'hn'"),
        ({"h": "hn", "c": "hn"}, r"--state feeds 'hn' to several inputs"),
        (
            {"h": "y"},
            r"--state h=y: the output does not fit the input: y: float32\[N, 3\] cannot be fed to h: float",
        ),
    ],
)
def test_wrong_pairs_are_refused_with_what_is_known(given: dict[str, str], message: str) -> None:
    inputs = specs(X, ("h", (1, "N", 8)), ("c", (1, "N", 8)))
    with pytest.raises(UsageError, match=message):
        given_states(given, inputs, specs(("y", ("N", 3)), ("hn", (1, "N", 8))))


def test_caches_that_grow_are_known_by_name() -> None:
    assert growing(specs(X, ("past_key_values.0.key", (1, 2)), ("h", (1,)))) == ["past_key_values.0.key"]
