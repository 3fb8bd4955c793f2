"""Find the inputs of a model that are states, fed back from outputs: by the user, the graph or the names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.domain import without_functions
from onnxport.samples.value_uses import carried_values, uses

# Input name -> the output that is its next value.
States = dict[str, str]

# (operator, input of the initial state) -> output of the last state.
_RECURRENT = {("LSTM", 5): 1, ("LSTM", 6): 2, ("GRU", 5): 1, ("RNN", 5): 1}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
# Words by which the two names of one state differ: state and stateN, h0 and hn, cache_in and cache_out.
_ENDS = frozenset(
    "in out input output new next cur current prev previous init initial last final updated n t".split()
)
_STATE = frozenset(
    "h c state states hidden cell cache memory mem buffer buf ctx context rnn lstm gru".split()
)
# Caches that grow with each step: no step repeats without a mask and positions that grow too.
_GROWING = re.compile(r"^past|past_key|past_value")


def find_states(model: Model | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> States:
    """Return the pairs found in the graph or by the names; empty where no other input would remain.

    Both ends of a pair have the same dtype and rank, and sizes that do not contradict.

    Args:
        model: without functions; None where there is no graph to read.
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
    """Check the user's states and return them.

    Raises:
        UsageError: the model has no tensor of a name, an output feeds two inputs, or shapes do not fit.
    """
    known_inputs = {spec.name: spec for spec in inputs}
    known_outputs = {spec.name: spec for spec in outputs}
    for name, output in given.items():
        for kind, tensor, known in (("input", name, known_inputs), ("output", output, known_outputs)):
            if tensor not in known:
                listed = ", ".join(repr(each) for each in known) or "none"
                raise UsageError(
                    f"--state {name}={output}: no {kind} {tensor!r}", fix=f"the {kind}s are {listed}"
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
    """Return the inputs that a user's files may lack, because states start as zeros.

    Args:
        given: the user's pairs; where empty, those found in the model.
    """
    found = given or find_states(without_functions(model), model.inputs, model.outputs)
    return frozenset(found)


def growing(inputs: Sequence[TensorSpec]) -> list[str]:
    """Return the inputs that look like a growing cache, which is not fed back."""
    return [spec.name for spec in inputs if _GROWING.search(spec.name)]


def _fit(given: TensorSpec, output: TensorSpec) -> bool:
    """Return whether an output may feed an input; symbolic sizes may still turn out equal."""
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
    """Yield the pairs at the two ends of one recurrent operator, possibly reshaped."""
    if model is None:
        return
    outputs = {id(value): value.name for value in model.graph.outputs if value.name}
    for given in model.graph.inputs:
        for node, index in uses(given):
            position = _RECURRENT.get((node.op_type, index))
            if position is None or position >= len(node.outputs) or not given.name:
                continue
            for value in carried_values(node.outputs[position]):
                if id(value) in outputs:
                    yield given.name, outputs[id(value)]


def _by_name(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Iterator[tuple[str, str]]:
    """Yield the pairs whose names contain a word for state and differ only in the words of _ENDS."""
    for given in inputs:
        stem = _stem(given.name)
        matching = [output.name for output in outputs if _stem(output.name) == stem]
        if not _GROWING.search(given.name) and _STATE.intersection(stem) and len(matching) == 1:
            yield given.name, matching[0]


def _stem(name: str) -> tuple[str, ...]:
    """Return the words of a name without those of _ENDS: ("state",) for "state" and "stateN"."""
    words: Iterable[str] = (word.lower() for word in _WORDS.findall(name))
    spelled = ("h" if word == "hn" else "c" if word == "cn" else word for word in words)
    stem = tuple(word for word in spelled if word not in _ENDS)
    # h0, c0: the state at time 0.
    return stem[:-1] if len(stem) > 1 and stem[-1] == "0" and stem[0] in ("h", "c") else stem
