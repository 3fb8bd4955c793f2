"""Which inputs of a model are its state, fed back from an output: told by the user, by the graph or by the names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.domain import without_functions
from onnxport.samples.value_uses import carried_on, uses

# Input name -> the output that is its next value.
States = dict[str, str]

# (operator, position of the initial state) -> the output that is the last one.
_RECURRENT = {("LSTM", 5): 1, ("LSTM", 6): 2, ("GRU", 5): 1, ("RNN", 5): 1}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
# What the names of the two ends of one state differ in: state and stateN, h0 and hn, cache_in and cache_out.
_ENDS = frozenset(
    "in out input output new next cur current prev previous init initial last final updated n t".split()
)
_STATE = frozenset(
    "h c state states hidden cell cache memory mem buffer buf ctx context rnn lstm gru".split()
)
# Caches that grow by each step's length: no step can be repeated without a mask and positions that grow along.
_GROWING = re.compile(r"^past|past_key|past_value")


def find_states(model: Model | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> States:
    """The pairs that the graph or the names tell; empty where no input besides would be left to feed.

    A pair has one dtype and rank, and no two sizes that contradict.

    Args:
        model: without functions; None where there is no graph to read.
        inputs, outputs: the model's tensors.
    """
    known = {spec.name: spec for spec in outputs}
    found: States = {}
    for name, output in (*_by_graph(model), *_by_name(inputs, outputs)):
        given = next((spec for spec in inputs if spec.name == name), None)
        fits = given is not None and output in known and _fit(given, known[output])
        if fits and name not in found and output not in found.values():
            found[name] = output
    return found if len(found) < len(inputs) else {}


def given_states(
    given: Mapping[str, str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> States:
    """What the user says, checked.

    Raises:
        UsageError: a name that the model does not have, an output that feeds two inputs, or shapes that do not fit.
    """
    known_inputs = {spec.name: spec for spec in inputs}
    known_outputs = {spec.name: spec for spec in outputs}
    for name, output in given.items():
        for kind, asked, known in (("input", name, known_inputs), ("output", output, known_outputs)):
            if asked not in known:
                listed = ", ".join(repr(each) for each in known) or "none"
                raise UsageError(
                    f"--state {name}={output}: no {kind} {asked!r}", fix=f"the {kind}s are {listed}"
                )
        if list(given.values()).count(output) > 1:
            raise UsageError(
                f"--state feeds {output!r} to several inputs", fix="give each state its own output"
            )
        if not _fit(known_inputs[name], known_outputs[output]):
            raise UsageError(
                f"--state {name}={output}: the output does not fit the input",
                why=f"{known_outputs[output]} cannot be fed to {known_inputs[name]}",
            )
    return dict(given)


def state_inputs(model: Model, given: Mapping[str, str]) -> frozenset[str]:
    """The inputs that a user's files may lack, since they begin with zeros.

    Args:
        given: the pairs that the user says; those that the model tells where there are none.
    """
    found = given or find_states(without_functions(model), model.inputs, model.outputs)
    return frozenset(found)


def growing(inputs: Sequence[TensorSpec]) -> list[str]:
    """Inputs that look like a cache which grows with every step, and so is not fed back."""
    return [spec.name for spec in inputs if _GROWING.search(spec.name)]


def _fit(given: TensorSpec, output: TensorSpec) -> bool:
    """Sizes with a name may still turn out to be the same."""
    return (
        given.dtype == output.dtype
        # No shape at all is a scalar or, of an output, an unknown one.
        and (len(given.shape) == len(output.shape) or not output.shape)
        and all(
            not (isinstance(ours, int) and isinstance(theirs, int)) or ours == theirs
            for ours, theirs in zip(given.shape, output.shape, strict=False)
        )
    )


def _by_graph(model: Model | None) -> Iterator[tuple[str, str]]:
    """Pairs at the two ends of one recurrent operator, maybe reshaped on the way."""
    if model is None:
        return
    outputs = {id(value): value.name for value in model.graph.outputs if value.name}
    for given in model.graph.inputs:
        for node, index in uses(given):
            position = _RECURRENT.get((node.op_type, index))
            if position is None or position >= len(node.outputs) or not given.name:
                continue
            for value in carried_on(node.outputs[position]):
                if id(value) in outputs:
                    yield given.name, outputs[id(value)]


def _by_name(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Iterator[tuple[str, str]]:
    """Pairs whose names say "state" and differ in nothing but which end they are."""
    for given in inputs:
        stem = _stem(given.name)
        matching = [output.name for output in outputs if _stem(output.name) == stem]
        if not _GROWING.search(given.name) and _STATE.intersection(stem) and len(matching) == 1:
            yield given.name, matching[0]


def _stem(name: str) -> tuple[str, ...]:
    """The words of a name without those that tell its end: ("state",) for "state" and "stateN"."""
    words: Iterable[str] = (word.lower() for word in _WORDS.findall(name))
    spelled = ("h" if word == "hn" else "c" if word == "cn" else word for word in words)
    kept = [word for word in spelled if word not in _ENDS]
    # h0, c0: the state at time 0.
    return tuple(kept[:-1] if len(kept) > 1 and kept[-1] == "0" and kept[0] in ("h", "c") else kept)
