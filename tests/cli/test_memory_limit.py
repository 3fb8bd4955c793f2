"""What models may take in memory and in time, through the installed command, watched from outside."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.cli.sandbox import Outcome, Sandbox

PROC = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Sixteen times a picture's outer product with itself: 19 GB at the first sizes, 0.1 GB at 32 by 32.
OUTER = """g (float[1, 1, h, w] x) => (float[1, 1, a] y)
<int64[1] one = {0}, int64[3] row = {1, 1, -1}, int64[3] column = {1, -1, 1}> {
    q = Reshape(x, row)  r = Concat<axis = 2>(q, q, q, q, q, q, q, q, q, q, q, q, q, q, q, q)
    c = Reshape(x, column)  o = Mul(r, c)  e = Sin(o)  p = Mul(e, o)
    m = ReduceMean<keepdims = 0, axes = [1]>(p)  y = Unsqueeze(m, one) }"""
# As many rows and columns as the picture has points, which nobody knows before the run.
UNKNOWN = """g (float[1, 1, h, w] x) => (float[1, a] y) <float zero = {0}, int64[1] flat = {-1}, int64[1] first = {0}> {
    i = IsNaN(x)  j = Not(i)  k = NonZero(j)  s = Shape(k)  one = Constant<value_int = 1>()
    n = Gather(s, one)  u = Unsqueeze(n, first)  d = Concat<axis = 0>(u, u)  e = ConstantOfShape(d)  q = Sin(e)
    m = ReduceMean<axes = [0], keepdims = 1>(q)  f = Reshape(x, flat)  y = Add(m, f) }"""
# 40 GB whatever is fed, as shape inference knows.
ALWAYS = """g (float[1, n] x) => (float[1, 100000] y) <int64[2] d = {100000, 100000}, int64[1] one = {1}> {
    s = ReduceSum(x, one)  e = Expand(s, d)  q = Sin(e)  y = ReduceMean<axes = [0], keepdims = 1>(q) }"""
SMALL = "g (float[1, 100] x) => (float[1, 100] y) { y = Sin(x) }"
# The same answers, beside 4.8 GB of nothing.
GREEDY = """g (float[1, 100] x) => (float[1, 100] y)
<int64[2] d = {30000, 40000}, int64[1] one = {1}, float zero = {0}> {
    s = ReduceSum(x, one)  e = Expand(s, d)  q = Sin(e)  m = ReduceMean<keepdims = 1>(q)  z = Mul(m, zero)
    w = Sin(x)  y = Add(w, z) }"""

# An answer of 20 MB, of which inference knows nothing; memory holds several copies of an answer.
LONG = """g (float[1, 100] x) => (float[r, c] y) <float many = {50000}, int64[1] one = {1}> {
    l = ReduceMin(x)  z = Sub(l, l)  t = Add(z, many)  i = Cast<to = 7>(t)  f = Reshape(i, one)
    d = Concat<axis = 0>(one, f)  y = Tile(x, d) }"""


def saved(sandbox: Sandbox, text: str, name: str = "model.onnx") -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    onnx.save(proto, sandbox.folder / name)


def held(root: int) -> int:
    """Bytes that a process and those that it started hold, without files."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    todo, total = [root], 0
    while todo:
        process = todo.pop()
        todo += parents.get(process, [])
        try:
            resident, of_files = map(int, Path(f"/proc/{process}/statm").read_text().split()[1:3])
        except OSError:
            continue
        total += (resident - of_files) * PAGE
    return total


def watched(sandbox: Sandbox, *arguments: Any) -> tuple[Outcome, int, float]:
    """How the command ends, the most that its processes held together, and its seconds."""
    began, most = time.monotonic(), 0
    output, errors = (sandbox.folder.parent / name for name in ("stdout", "stderr"))
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(
            sandbox.command(*arguments), cwd=sandbox.folder, env=sandbox.environment, stdout=out, stderr=err
        )
        while process.poll() is None:
            most = max(most, held(process.pid))
            time.sleep(0.02)
    outcome = Outcome(process.returncode, output.read_text(), errors.read_text())
    return outcome, most, time.monotonic() - began


@PROC
@pytest.mark.parametrize("text", [OUTER, UNKNOWN], ids=["known to inference", "seen when it runs"])
def test_smaller_sizes_are_found_for_a_model_that_takes_gigabytes_at_the_first(
    text: str, sandbox: Sandbox
) -> None:
    saved(sandbox, text)
    before = sandbox.contents()
    outcome, most, _ = watched(
        sandbox, "validate", "model.onnx", "model.onnx", "--samples", "1", "--memory-limit", "600MB"
    )
    assert outcome.code == 0, outcome.stderr
    assert most < 600e6
    assert sandbox.contents() == before


@pytest.mark.parametrize(
    ("options", "code"), [((), 6), (("--memory-limit", "3GB"), 2)], ids=["default", "own"]
)
def test_a_model_too_large_at_any_size_is_refused_before_it_runs(
    options: tuple[str, ...], code: int, sandbox: Sandbox
) -> None:
    saved(sandbox, ALWAYS)
    before = sandbox.contents()
    outcome, most, seconds = watched(sandbox, "validate", "model.onnx", "model.onnx", *options)
    assert outcome.code == code
    assert "running the reference on x [1, 1]" in outcome.stderr
    assert "takes at least 40.3GB" in outcome.stderr
    assert "--shape" in outcome.stderr
    assert most < 0.5e9
    assert sandbox.contents() == before
    assert seconds < 30


@PROC
@pytest.mark.parametrize(
    ("options", "code", "limit"), [((), 6, 4e9), (("--memory-limit", "2GB"), 2, 2e9)], ids=["default", "own"]
)
def test_a_candidate_that_takes_too_much_is_ended(
    options: tuple[str, ...], code: int, limit: float, sandbox: Sandbox
) -> None:
    saved(sandbox, SMALL)
    saved(sandbox, GREEDY, "greedy.onnx")
    before = sandbox.contents()
    outcome, most, _ = watched(sandbox, "validate", "model.onnx", "greedy.onnx", *options)
    assert outcome.code == code, outcome.stderr
    assert "running the candidate greedy.onnx on x [1, 100]" in outcome.stderr
    assert "when it was ended" in outcome.stderr
    assert "--memory-limit" in outcome.stderr
    assert most < limit
    assert sandbox.contents() == before


@PROC
def test_the_memory_that_an_error_names_is_above_the_limit(sandbox: Sandbox) -> None:
    """All processes count, and all copies of an answer: "it had taken 20MB" contradicted the limit."""
    saved(sandbox, LONG)
    outcome = sandbox.run("validate", "model.onnx", "model.onnx", "--memory-limit", "400MB")
    assert outcome.code == 2, outcome.stderr
    taken = re.search(r"all processes together would take (\d+)MB", outcome.stderr)
    assert taken, outcome.stderr
    assert int(taken[1]) > 400


def test_inputs_of_the_users_that_take_too_much_are_refused_with_their_file(sandbox: Sandbox) -> None:
    saved(sandbox, OUTER)
    (sandbox.folder / "inputs").mkdir()
    np.save(sandbox.folder / "inputs" / "wide.npy", np.ones((1, 1, 200, 400), np.float32))
    outcome = sandbox.run("validate", "model.onnx", "model.onnx", "--inputs", "inputs")
    assert outcome.code == 6
    assert "running the reference on" in outcome.stderr
    assert "wide.npy" in outcome.stderr
    assert "GB" in outcome.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("convert", "model.onnx", "--to", "ort"),
        ("optimize", "model.onnx"),
        ("quantize", "model.onnx", "--dynamic"),
        ("debug", "model.onnx", "model.onnx"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_proves_has_the_limit(command: tuple[str, ...], sandbox: Sandbox) -> None:
    before = sandbox.contents()
    outcome = sandbox.run(*command, "--memory-limit", "200MB")
    assert outcome.code == 2, outcome.stderr
    assert "exceeds --memory-limit 200MB" in outcome.stderr
    assert sandbox.contents() == before
    shown = sandbox.run(command[0], "--help").stdout
    assert shown.count("--memory-limit SIZE") == 1
