"""Write a folder with the node at fault as a model, the inputs that show the fault, and both answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError, UsageError, printable
from onnxport.core.npz_writer import write_npz
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.debug.graph import Network, Part
from onnxport.validate.debug.local_error import LocalError, Replay
from onnxport.validate.debug.rounding import Rounds
from onnxport.validate.debug.search import Trail
from onnxport.validate.debug.taps import PLAIN, Sides

MODEL, INPUTS, ANSWERS, README = "model.onnx", "inputs/inputs.npz", "answers.npz", "README.md"
CANDIDATE = "candidate.onnx"
TITLE = "# One node of "
_FEW = 5
_OURS = frozenset({MODEL, INPUTS, ANSWERS, README, CANDIDATE})


def check_place(folder: Path) -> None:
    """Refuse a folder that contains anything but an earlier repro, which is replaced (UsageError)."""
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link", fix="give -o the folder itself")
    with Staging(folder, "-o", folder=True), writing(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise UsageError(f"{folder} is a file", fix="give -o a folder")
        others = _others(folder)
        if others:
            raise UsageError(
                f"{folder} contains other files: {', '.join(others[:_FEW])}",
                why="an earlier repro is replaced as a whole, and they would be lost",
                fix="move them away, or give -o a folder that is new or empty",
            )


def _others(folder: Path) -> list[str]:
    """Return the files that are not a repro's; all files where the folder is no repro."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {str(Path(INPUTS).parent)}
    readme = folder / README
    if (
        names >= {MODEL, INPUTS, ANSWERS}
        and readme.is_file()
        and readme.read_bytes().startswith(TITLE.encode())
    ):
        return sorted(names - _OURS)
    return sorted(names)


def write(
    folder: Path,
    sides: Sides,
    feeds: Feeds,
    trail: Trail,
    candidate: Artifact,
    summary: Callable[[LocalError], str],
) -> LocalError:
    """Write the repro of a search's fault to `folder`, all of it or nothing.

    Args:
        summary: describes the fault with the folder's numbers.

    Returns:
        The fault with these numbers: this run shows fewer values than the search, which may change the last digits.

    Raises:
        UsageError: the folder contains other files.
        MachineError: it cannot be written.
    """
    assert trail.fault is not None
    check_place(folder)
    value = trail.fault.value
    given = [*trail.needs, value]
    values = sides.fetch(feeds, given).candidate
    part = Replay(sides.network, trail.needs, {}).part([value], values)
    inputs = {name: values[name] if name in values else feeds[name] for name in part.inputs}
    with OrtRuntime(part.proto.SerializeToString(), PLAIN, folder=sides.network.folder) as runtime:
        answer = runtime.run(inputs)[value]
    proto = _typed(part, sides.network, inputs, answer)
    theirs = _candidate_part(candidate, value, trail.needs, inputs, answer, sides.dtypes)
    models = {MODEL: proto} | ({} if theirs is None else {CANDIDATE: theirs})
    fault = _updated(trail.fault, answer, values[value])
    readme = _readme(summary(fault), candidate, fault, sides.rounds, sliced=theirs is not None)
    _save(folder, models, inputs, (answer, values[value]), readme)
    return fault


def _updated(fault: LocalError, answer: Array, given: Array) -> LocalError:
    if answer.shape != given.shape or len(fault.index) != answer.ndim or answer.dtype.kind not in "fiub":
        return fault
    return replace(fault, expected=float(answer[fault.index]), given=float(given[fault.index]))


def _typed(part: Part, network: Network, inputs: Feeds, answer: Array) -> onnx.ModelProto:
    """Return the part with its weights, and with the types and sizes of this run."""
    proto = onnx.ModelProto.FromString(part.proto.SerializeToString())
    if network.folder is not None:
        onnx.load_external_data_for_model(proto, str(network.folder))
    for value in (*proto.graph.input, *proto.graph.output):
        array = inputs.get(value.name, answer)
        if array.dtype.kind in "OUS":
            continue
        element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(element, array.shape))
    return proto


def _save(
    folder: Path,
    models: Mapping[str, onnx.ModelProto],
    inputs: Feeds,
    answers: tuple[Array, Array],
    readme: str,
) -> None:
    with Staging(folder, "-o", folder=True) as staging, writing(folder):
        made = staging.folder / "repro"
        (made / INPUTS).parent.mkdir(parents=True)
        for name, proto in models.items():
            (made / name).write_bytes(proto.SerializeToString(deterministic=True))
        write_npz(made / INPUTS, inputs)
        write_npz(made / ANSWERS, {"reference": answers[0], "candidate": answers[1]})
        (made / README).write_text(readme, encoding="utf-8")
        staging.commit_folder(made)


# The step that made the candidate, by its format, to run on this one node.
_COMMANDS = {
    "tflite": "onnxport convert model.onnx --to tflite --inputs inputs/ -o ../again.tflite",
    "ort": "onnxport convert model.onnx --to ort --inputs inputs/ -o ../again.ort",
}


def _readme(summary: str, candidate: Artifact, fault: LocalError, rounds: Rounds, *, sliced: bool) -> str:
    name = candidate.path.name
    slice_line = f"- `{CANDIDATE}`: the same part of {name}\n" if sliced else ""
    rounded = f", before they are rounded to {rounds.precision}" if rounds.made else ""
    return f"""{TITLE}{name}

{_plain(summary)}.

- `{MODEL}`: the node, or the nodes that the candidate fuses, with weights
{slice_line}- `{INPUTS}`: the values that the candidate gave it, by input name
- `{ANSWERS}`: `reference`, what ONNX Runtime makes of these inputs{rounded}; `candidate`, what {name} has there

## Both answers

    python - <<'END'
    import numpy as np, onnxport
    given, said = np.load("{INPUTS}"), np.load("{ANSWERS}")
    with onnxport.load("{MODEL}") as model:
        answer = next(iter(model.run(dict(given)).values()))
{_both(fault)}
    END
{_again(candidate, sliced=sliced)}"""


def _plain(text: str) -> str:
    """Return text as Markdown, whatever names it has."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", printable(text))


def _both(fault: LocalError) -> str:
    """Return lines of Python that print the named element, or what differs where there is none."""
    if np.isnan(fault.expected) and np.isnan(fault.given):
        return """\
    for name, values in (("ONNX Runtime", answer), ("candidate", said["candidate"])):
        print(name, values.dtype, values.shape)"""
    return f"""\
    index = {fault.index}
    print("at", list(index))
    for name, values in (("ONNX Runtime", answer), ("candidate", said["candidate"])):
        print(name, f"{{values[index]:.6g}}")"""


def _again(candidate: Artifact, *, sliced: bool) -> str:
    name = candidate.path.name
    if sliced:
        return f"""
## One against the other

    onnxport validate {MODEL} {CANDIDATE} --inputs inputs/

Exit 1: the fault is in this part of {name}.
"""
    if candidate.format not in _COMMANDS:
        return ""
    return f"""
## Does the converter do it again?

    {_COMMANDS[candidate.format]}

Exit 1: yes, with the figures. Exit 0: no, something else put the fault into {name}:
another version of the converter, or a step before or after it.
"""


def _candidate_part(
    candidate: Artifact,
    value: str,
    needs: Sequence[str],
    inputs: Feeds,
    answer: Array,
    dtypes: Mapping[str, np.dtype[np.generic]],
) -> onnx.ModelProto | None:
    """Return the candidate's nodes from `needs` to `value`, with the reference's inputs and output.

    Args:
        inputs: of the reference's nodes, by name.
        answer: their output.
        dtypes: the candidate's own, where they differ from the reference's.

    Returns:
        None for a candidate that is no ONNX file, or whose nodes there have other inputs.
    """
    if candidate.format != "onnx":
        return None
    theirs = Network(Model.load(candidate.path))
    if value not in theirs.producers:
        return None
    part = theirs.part([value], frozenset(needs))
    if set(part.inputs) != set(inputs):
        return None
    proto = onnx.ModelProto.FromString(part.proto.SerializeToString())
    if theirs.folder is not None:
        onnx.load_external_data_for_model(proto, str(theirs.folder))
    for given in proto.graph.input:
        given.type.CopyFrom(_type(inputs[given.name]))
    proto.graph.output[0].type.CopyFrom(_type(answer))
    _insert_casts(
        proto.graph, {name: array.dtype for name, array in (*inputs.items(), (value, answer))}, dtypes
    )
    return proto if _runs(proto, inputs) else None


def _insert_casts(
    graph: onnx.GraphProto,
    ours: Mapping[str, np.dtype[np.generic]],
    theirs: Mapping[str, np.dtype[np.generic]],
) -> None:
    """Insert Casts at the ends where the candidate computes in another type."""
    before, after = list[onnx.NodeProto](), list[onnx.NodeProto]()
    made = {name for node in graph.node for name in node.output}
    for name in [name for name, dtype in ours.items() if theirs.get(name, dtype) != dtype]:
        inner = f"{name}/own"
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [inner if each == name else each for each in names]
        if name in made:
            after.append(_cast_node(inner, name, ours[name]))
        else:
            before.append(_cast_node(name, inner, theirs[name]))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def _cast_node(source: str, target: str, dtype: np.dtype[np.generic]) -> onnx.NodeProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_node("Cast", [source], [target], name=f"{target}/cast", to=element)


def _type(array: Array) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _runs(proto: onnx.ModelProto, inputs: Feeds) -> bool:
    try:
        with OrtRuntime(proto.SerializeToString(), PLAIN) as runtime:
            runtime.run(inputs)
    except OnnxportError:
        return False
    return True
