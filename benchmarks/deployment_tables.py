"""Data files of `inspect --runs-on` that are written from the runtimes' own documents and tables.

    python -m benchmarks.deployment_tables cuda --source FOLDER --version 1.25 --commit HASH --dated 2026-02-13
    python -m benchmarks.deployment_tables openvino-ep --source FOLDER ...
    python -m benchmarks.deployment_tables tensorrt --source FOLDER --version 10.1 ...

FOLDER is a checkout of onnxruntime, for tensorrt of onnx-tensorrt. docs/OperatorKernels.md of the former is generated
from the kernels that are registered. The file is written into onnxport/deployment/data/, unless `--print` is given.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import yaml

DATA = Path(__file__).parents[1] / "onnxport" / "deployment" / "data"
_ONNX_RUNTIME = "https://github.com/microsoft/onnxruntime"
_KERNELS = "docs/OperatorKernels.md"
_OPENVINO = "onnxruntime/core/providers/openvino/ov_versions/data_ops.cc"
_TENSORRT = "docs/operators.md"
_CPU = "ONNX Runtime's CPU provider"


@dataclass(frozen=True)
class Origin:
    """Where a data file has its operators from, and what stands at its head.

    Attributes:
        read: the data file's content out of a checkout.
    """

    title: str
    repository: str
    document: str
    read: Callable[[Path], dict[str, Any]]
    notes: tuple[str, ...] = ()


# ONNX's names of element types where NumPy's are others; those that are left out exist in no tensor of a model.
_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
}
_TYPE = re.compile(r"tensor\((\w+)\)")
_PARAMETER = re.compile(r"\*(in|out)\* \w+:\*\*(\w+)\*\*")
# Of ONNX's first drafts, which no release of it has, or ONNX Runtime's own among the nodes of others.
_WITHDRAWN = (
    "MemcpyFromHost",
    "MemcpyToHost",
    "Affine",
    "Crop",
    "DynamicSlice",
    "GivenTensorFill",
    "ImageScaler",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
)
# Kernels without a type of their own to choose, which the document leaves out.
_UNLISTED = {"NonMaxSuppression": (10, 11)}
_DOMAINS = {"ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml", "com.microsoft": "com.microsoft"}


def table(source: Path, provider: str) -> dict[str, Any]:
    """The sets and operators of a data file: all kernels that `provider` has in ONNX's and Microsoft's domains."""
    operators: dict[str, list[dict[str, Any]]] = {}
    sets: dict[tuple[str, ...], str] = {}
    for name, versions, parameters, types in _rows((source / _KERNELS).read_text(), provider):
        if name in _WITHDRAWN:
            continue
        rule: dict[str, Any] = {"version": _version(versions)}
        if found := _types(types, parameters, name):
            rule["types"] = {
                key: sets.setdefault(each, f"t{len(sets)}") if len(each) > 1 else each[0]
                for key, each in found.items()
            }
        if rule not in operators.setdefault(name, []):
            operators[name].append(rule)
    for name, versions in _UNLISTED.items():
        operators.setdefault(name, [{"version": each} for each in versions])
    return {"sets": {name: list(types) for types, name in sets.items()}, "operators": operators}


def _rows(text: str, provider: str) -> Iterator[tuple[str, str, str, str]]:
    """Operator with its domain, versions, parameters and types of every kernel in the section of `provider`."""
    section = text.split(f"## Operators implemented by {provider}")[1].split("\n## ")[0]
    domain, operator, parameters = "", "", ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if found := re.match(r"\|\*\*Operator Domain:\*\* \*(.+?)\*", line):
            domain = found[1]
        elif line.startswith("|||"):
            yield operator, *_ends(line[3:], parameters)
        elif len(cells) == 4 and cells[0] not in ("Op Name", "---------") and domain in _DOMAINS:
            own = _DOMAINS[domain]
            operator, parameters = f"{own}::{cells[0]}" if own else cells[0], cells[1]
            yield operator, cells[2], parameters, cells[3]
        if domain not in ("", *_DOMAINS):
            return


def _ends(line: str, parameters: str) -> tuple[str, str, str]:
    versions, types = line.strip("|").split("|", 1)
    return versions, parameters, types


def _version(text: str) -> int | str:
    """ONNX Runtime takes a kernel without an end ("13+") for that form of the operator alone."""
    if found := re.match(r"\[(\d+), (\d+)\]", text):
        return f"{found[1]}..{found[2]}"
    return int(text.rstrip("+"))


def _types(text: str, parameters: str, operator: str) -> dict[str, tuple[str, ...]]:
    """Parameter or type of the schema to element types. Of another domain, whose schemas nobody here has, positions."""
    domain, _, op = operator.rpartition("::")
    found = {name: _named(types) for name, types in re.findall(r"\*\*(\w+)\*\* = (.+?)(?:<br/>|$)", text)}
    if domain == "com.microsoft":
        return {key: found[each] for key, each in _positions(parameters) if found.get(each)}
    schemas = [
        each for each in onnx.defs.get_all_schemas_with_history() if (each.domain, each.name) == (domain, op)
    ]
    values = [value for each in schemas for value in (*each.inputs, *each.outputs)]
    known = {value.name for value in values} | {value.type_str for value in values}
    return {name: types for name, types in found.items() if name in known and types}


def _positions(parameters: str) -> Iterator[tuple[str, str]]:
    first = parameters.split("<br><br>or")[0]
    counts = {"in": 0, "out": 0}
    for side, kind in _PARAMETER.findall(first):
        yield (f"out {counts[side]}" if side == "out" else str(counts[side])), kind
        counts[side] += 1


def _named(types: str) -> tuple[str, ...]:
    return tuple(sorted({_NAMES.get(name, name) for name in _TYPE.findall(types)}))


def document(name: str, content: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    """The data file's text."""
    origin = ORIGINS[name]
    head = {
        "runtime": name,
        "title": origin.title,
        "kind": "provider",
        "version": arguments.version,
        "sources": [f"{origin.repository}/blob/{arguments.commit}/{origin.document}"],
        "dated": arguments.dated,
        "fallback": _CPU,
        "notes": list(origin.notes),
    }
    lines = ["# Written by benchmarks/deployment_tables.py, which has the command."]
    lines += [_line(key, value) for key, value in head.items() if value]
    lines += [_line(key, value) for key, value in content.items() if key not in _LISTED]
    for key in (key for key in _LISTED if key in content):
        lines += [f"{key}:", *(f"  {_line(each, value)}" for each, value in content[key].items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any) -> str:
    """An entry on one line."""
    shown = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).strip()
    name = yaml.safe_dump(key, width=10**6).strip().removesuffix("...").strip()
    return f"{name}: {shown.removesuffix('...').strip()}"


# Entries that stand on lines of their own.
_LISTED = ("sets", "operators")


def _openvino(source: Path) -> dict[str, Any]:
    """Return the provider's conditions for a node on a CPU: operator, types of all tensors, scalars of some only."""
    text = (source / _OPENVINO).read_text()
    entries = re.findall(
        r'\{"(\w+)", V_\w+, \{([^}]*)\}\}', text.split("no_dimension_supported_.push_back")[0]
    )
    scalars = re.findall(r'no_dimension_supported_\.push_back\(\{"(\w+)", V_\w+, \{([^}]*)\}\}', text)
    known, free = (
        sorted({op for op, on in each if "CPU" in on or "All" in on}) for each in (entries, scalars)
    )
    types = re.findall(
        r"supported_types_(?:cpu|initializer)_\.insert\(\s*std::make_pair\([^:]*::\w*DataType_(\w+)", text
    )
    types = types or re.findall(r"supported_types_(?:cpu|initializer)_\.insert\([^;]*?DataType_(\w+)", text)
    every = {
        "types": {"all": sorted({_NAMES.get(each.lower(), each.lower()) for each in types} - {"string"})}
    }
    rule = {"conditions": {"no_scalars": True}}
    operators = {op: None if op in free else rule for op in known if onnx.defs.has(op) or op in _MICROSOFTS}
    return {"every": every, "operators": {_MICROSOFTS.get(op, op): each for op, each in operators.items()}}


_MICROSOFTS = {
    op: f"com.microsoft::{op}" for op in ("BiasGelu", "FusedConv", "FusedGemm", "FusedMatMul", "QuickGelu")
}


def _tensorrt(source: Path) -> dict[str, Any]:
    """Operators with the types of their first input, and those of their restrictions that attributes or ranks say."""
    text = (source / _TENSORRT).read_text()
    opsets = re.search(r"range of opset (\d+) to opset (\d+)", text)
    assert opsets, "the document says nothing of opsets"
    operators: dict[str, Any] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) > 2 and cells[1] == "Y" and onnx.defs.has(cells[0]) and cells[0] not in _LEFT_OUT:
            types = [_TENSORRTS[each.strip()] for each in cells[2].split(",") if each.strip() in _TENSORRTS]
            operators[cells[0]] = {"types": {"0": types}, **_RESTRICTIONS.get(cells[0], {})}
            inputs = {value.name for value in onnx.defs.get_schema(cells[0]).inputs}
            if "`axes` must be" in "".join(cells[3:]) and "axes" in inputs:
                operators[cells[0]]["constant"] = ["axes"]
    return {"opset": f"{opsets[1]}..{opsets[2]}", "operators": operators}


_TENSORRTS = {
    "FP32": "float32",
    "FP16": "float16",
    "BF16": "bfloat16",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "INF64": "int64",
    "INT8": "int8",
    "UINT8": "uint8",
    "FP8": "float8_e4m3fn",
    "INT4": "int4",
}
# ONNX Runtime gives it none of these: their results have sizes that depend on the data (trt_op_types_to_exclude).
_LEFT_OUT = ("NonMaxSuppression", "NonZero", "RoiAlign", "Constant")
_RESTRICTIONS: dict[str, dict[str, Any]] = {
    "AveragePool": {"ranks": {"X": "4..5"}, "attributes": {"dilations": [1]}},
    "MaxPool": {"ranks": {"X": "4..5"}, "attributes": {"dilations": [1]}, "outputs": 1},
    "LpPool": {"attributes": {"dilations": [1]}},
    "GridSample": {"ranks": {"X": 4}},
    "LSTM": {"attributes": {"input_forget": [0], "layout": [0]}},
    "Resize": {"attributes": {"mode": ["nearest", "linear"]}},
    "ScatterND": {"attributes": {"reduction": ["none"]}},
    "TopK": {"attributes": {"sorted": [1]}},
    "CumSum": {"constant": ["axis"]},
    "LayerNormalization": {"outputs": 1},
}

ORIGINS = {
    "cuda": Origin(
        "ONNX Runtime, CUDA provider",
        _ONNX_RUNTIME,
        _KERNELS,
        lambda source: table(source, "CUDAExecutionProvider"),
        (
            "It has kernels for what is counted as taken; nodes that compute shapes it leaves to the CPU on purpose.",
            "Attributes that one of its kernels refuses when it is made are not looked at.",
        ),
    ),
    "openvino-ep": Origin(
        "ONNX Runtime, OpenVINO provider",
        _ONNX_RUNTIME,
        _OPENVINO,
        _openvino,
        ("For its CPU device. Which modes of an operator it leaves out is not looked at.",),
    ),
    "tensorrt": Origin(
        "ONNX Runtime, TensorRT provider",
        "https://github.com/onnx/onnx-tensorrt",
        _TENSORRT,
        _tensorrt,
        ("What its parser takes; of an If or a Loop the provider takes all or nothing.",),
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runtime", choices=ORIGINS)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--dated", required=True)
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args(arguments)
    text = document(given.runtime, ORIGINS[given.runtime].read(given.source), given)
    if given.print:
        print(text, end="")
    else:
        (DATA / f"{given.runtime}.yaml").write_text(text)


if __name__ == "__main__":
    main()
