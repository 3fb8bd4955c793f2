"""Errors of torch in one sentence, with the place in the user's source."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import onnxport
from onnxport.core.errors import CannotConvertError, OnnxportError, Refusal
from onnxport.exporters.pytorch.recurrence import NotOneOperator

# Whoever wrote code in one of these, it was not the user who exports.
_LIBRARIES = tuple(
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(onnxport.__file__).parent)
)
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_SAID = 300  # characters of a library's message
_OLDER = "or give --exporter torchscript, which keeps what the example took"

# What torch says in a capture -> why, and the way out.
_TELLING: tuple[tuple[str, str, str], ...] = (
    (
        r"\.numpy\(\)|numpy\(\) |Cannot access data pointer|FakeTensor.*NumPy",
        "it leaves PyTorch: torch.export cannot follow NumPy or other libraries",
        "compute it with torch",
    ),
    (
        r"Must provide a tree_name",
        "torch.export leaves no dimensions open where inputs go into **kwargs",
        "make them parameters of forward",
    ),
    (
        r"could not convert .*(SymInt|SymFloat)|SymIntArrayRef expected",
        "an open size is needed as a number",
        "compute it with torch, or leave the dimension out of --dynamic",
    ),
)


def first_line(error: BaseException) -> str:
    """Return the kind of error and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].rstrip(".") if lines else ""
    text = text if len(text) <= _SAID else f"{text[:_SAID]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of_error(trace: TracebackType | None, module: Any) -> str:
    """Return where in the user's module a traceback ends: module path (fqn) and source line."""
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return _place(frames, module)


def place_of_frame(frame: FrameType | None, module: Any) -> str:
    """Return the same for a running frame."""
    frames: list[tuple[FrameType, int]] = []
    while frame is not None:
        frames.insert(0, (frame, frame.f_lineno))
        frame = frame.f_back
    return _place(frames, module)


def _place(frames: list[tuple[FrameType, int]], module: Any) -> str:
    names: Mapping[int, str] = {}
    if isinstance(module, torch.nn.Module):
        names = {id(each): name for name, each in module.named_modules()}
    inside = [names[found] for frame, _ in frames if (found := id(frame.f_locals.get("self"))) in names]
    own = [(frame.f_code.co_filename, line) for frame, line in frames if _is_users(frame.f_code.co_filename)]
    return _format_place(inside[-1] if inside else "", own[-1] if own else None)


def _is_users(file: str) -> bool:
    """Return whether a file is the user's: not of torch, ours or Python's; other packages count as the user's."""
    is_pythons = file.startswith(_PYTHON) and "-packages" not in file
    return not file.startswith(("<", *_LIBRARIES)) and not is_pythons


def place_of_node(node: torch.fx.Node) -> str:
    """Return where a node of a program comes from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, int(line)) for file, line in lines if _is_users(file)]
    return _format_place(stack[-1][0] if stack else "", own[-1] if own else None)


def _format_place(fqn: str, line: tuple[str, int] | None) -> str:
    module = f"in module {fqn!r}" if fqn else ""
    if line is None:
        return module
    file, number = line
    source = linecache.getline(file, number).strip()
    is_below_here = Path(file).is_relative_to(Path.cwd())
    at = f"at {os.path.relpath(file) if is_below_here else Path(file).name}:{number}"
    return " ".join(part for part in (module, at, f"({source})" if source else "") if part)


def at_place(place: str) -> str:
    return f" {place}" if place else ""


def capture_error(error: BaseException, module: Any, name: str) -> OnnxportError:
    """Return the error for a module that runs and that torch.export cannot capture."""
    if isinstance(error, OnnxportError):
        return error
    place = place_of_error(error.__traceback__, module)
    if isinstance(error, GuardOnDataDependentSymNode):
        return CannotConvertError(
            f"{name} branches on the values of its tensors{at_place(place)}",
            why="torch.export cannot record Python branches",
            fix=f"use torch.where or torch.cond there, {_OLDER}",
        )
    if isinstance(error, NotOneOperator):
        return CannotConvertError(f"{name} cannot be captured{at_place(place)}", why=error.why, fix=error.fix)
    text = str(error)
    for pattern, why, fix in _TELLING:
        if re.search(pattern, text):
            return CannotConvertError(f"{name} cannot be captured{at_place(place)}", why=why, fix=fix)
    return CannotConvertError(
        f"{name} cannot be captured by torch.export{at_place(place)}",
        why=first_line(error),
        fix=f"change that line, {_OLDER}",
    )


def translation_error(error: BaseException, name: str) -> OnnxportError:
    """Return the error for a program that torch.onnx cannot translate, with the operator."""
    way_out = "write it with other operators of torch, or give --opset, since newer ones have more"
    chain = list(_chain(error))
    node = next((found for each in chain if (found := _node_at(each.__traceback__)) is not None), None)
    if node is None:
        return CannotConvertError(f"{name} cannot be written as ONNX", why=first_line(chain[-1]), fix=way_out)
    missing = any(str(each).startswith(_NO_FUNCTION) for each in chain)
    why = "torch.onnx has no ONNX equivalent" if missing else f"torch.onnx fails: {first_line(chain[-1])}"
    place = place_of_node(node)
    return CannotConvertError(
        f"{name} cannot be written as ONNX",
        refusals=[Refusal(str(node.target), _fqn(node), f"{why}; {place}" if place else why)],
        fix=way_out,
    )


_NO_FUNCTION = "No ONNX function found"


def _node_at(trace: TracebackType | None) -> torch.fx.Node | None:
    """Return the node of a program that was translated when an error arose."""
    found = None
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        found = node if isinstance(node, torch.fx.Node) else found
        trace = trace.tb_next
    return found


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _fqn(node: torch.fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return f"{stack[-1][0]}/{node.name}" if stack and stack[-1][0] else node.name
