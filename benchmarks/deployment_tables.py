"""Data files of `inspect --runs-on` that are written from ONNX Runtime's own documents.

    python -m benchmarks.deployment_tables cuda --source FOLDER --version 1.25 --commit HASH --dated 2026-02-13

FOLDER is a checkout of onnxruntime; docs/OperatorKernels.md in it is generated from the kernels that are registered.
The file is written into onnxport/deployment/data/, unless `--print` is given.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import yaml

DATA = Path(__file__).parents[1] / "onnxport" / "deployment" / "data"
_HEADS: dict[str, dict[str, Any]] = {
    "cuda": {
        "title": "ONNX Runtime, CUDA provider",
        "provider": "CUDAExecutionProvider",
        "notes": [
            "It has kernels for what is counted as taken; nodes that compute shapes it leaves to the CPU on purpose.",
            "Attributes that one of its kernels refuses when it is made are not looked at.",
        ],
    },
    "ort-cpu": {"title": "ONNX Runtime, CPU provider", "provider": "CPUExecutionProvider", "notes": []},
}
_REPOSITORY = "https://github.com/microsoft/onnxruntime"
_DOCUMENT = "docs/OperatorKernels.md"
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
_DOMAINS = {"ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml", "com.microsoft": "com.microsoft"}


def table(source: Path, provider: str) -> dict[str, Any]:
    """The sets and operators of a data file: all kernels that `provider` has in ONNX's and Microsoft's domains."""
    operators: dict[str, list[dict[str, Any]]] = {}
    sets: dict[tuple[str, ...], str] = {}
    for name, versions, parameters, types in _rows((source / _DOCUMENT).read_text(), provider):
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
    head = {
        "runtime": name,
        "title": _HEADS[name]["title"],
        "kind": "provider",
        "version": arguments.version,
        "sources": [f"{_REPOSITORY}/blob/{arguments.commit}/{_DOCUMENT}"],
        "dated": arguments.dated,
        "fallback": "" if name == "ort-cpu" else "ONNX Runtime's CPU provider",
        "notes": _HEADS[name]["notes"],
    }
    lines = ["# Written by benchmarks/deployment_tables.py, which has the command."]
    lines += [_line(key, value) for key, value in head.items() if value]
    for key in ("sets", "operators"):
        lines += [f"{key}:", *(f"  {_line(each, value)}" for each, value in content[key].items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any) -> str:
    """An entry on one line."""
    shown = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).strip()
    name = yaml.safe_dump(key, width=10**6).strip().removesuffix("...").strip()
    return f"{name}: {shown.removesuffix('...').strip()}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runtime", choices=_HEADS)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--dated", required=True)
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args(arguments)
    text = document(given.runtime, table(given.source, _HEADS[given.runtime]["provider"]), given)
    if given.print:
        print(text, end="")
    else:
        (DATA / f"{given.runtime}.yaml").write_text(text)


if __name__ == "__main__":
    main()
