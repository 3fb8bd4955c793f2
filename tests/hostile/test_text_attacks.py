"""Pipelines, locks, caches and notes of others; and what names in them do to reports."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import random
import re
import shutil
from pathlib import Path

import pytest
import yaml

from onnxport.pipelines.cache import shared_cache
from onnxport.pipelines.graph.digests import digest_of_value
from onnxport.quantize.calibration.cache import _FORM, _decode
from tests.cli.sandbox import DIGITS
from tests.hostile.attacking import Case, Target, registering
from tests.hostile.structures import headers
from tests.hostile.test_sample_attacks import Evil

CASES: dict[str, Case] = {}
attack = registering(CASES)
PLAN = ("plan", "pipeline.yaml")
HEAD = "version: 1\nmodel: digits.onnx\n"
TARGETS = "targets:\n  server: {to: ort}\n"


def pipeline(target: Target, text: str) -> tuple[str, ...]:
    shutil.copy(DIGITS, target.folder)
    (target.folder / "pipeline.yaml").write_text(text)
    return PLAN


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@attack(2, "too large for a pipeline, with all aliases expanded")
def pipeline_of_a_billion_laughs(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + laughs(12) + TARGETS)


@attack(2, "too large for a pipeline")
def pipeline_that_holds_itself(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + "stages: &a {b: *a}\n" + TARGETS)


@attack(2, "is not in YAML's core schema")
def pipeline_with_an_object_of_python(target: Target) -> tuple[str, ...]:
    text = "stages: !!python/object/apply:os.system ['touch ../pwned']\n"
    return pipeline(target, HEAD + text + TARGETS)


@attack(2, "lies outside of the pipeline's folder")
def include_above_the_folder(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + "include: ../secret.bin\n" + TARGETS)


@attack(2, "lies outside of the pipeline's folder")
def include_behind_a_link(target: Target) -> tuple[str, ...]:
    (target.folder / "more.yaml").symlink_to(target.secret)
    return pipeline(target, HEAD + "include: more.yaml\n" + TARGETS)


@attack(2, "nested too deeply")
def pipeline_of_ten_thousand_brackets(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + "stages: " + "[" * 10_000 + "]" * 10_000 + "\n" + TARGETS)


@attack(2, "larger than 1,048,576 bytes", "--limit yaml-bytes=")
def pipeline_of_many_megabytes(target: Target) -> tuple[str, ...]:
    return pipeline(target, HEAD + TARGETS + "# x\n" * 500_000)


def lock(target: Target, text: str) -> tuple[str, ...]:
    pipeline(target, HEAD + TARGETS)
    (target.folder / "pipeline.lock").write_text(text)
    return (":lock", "pipeline.lock")


@attack(2, "pipeline.lock", "alias")
def lock_of_a_billion_laughs(target: Target) -> tuple[str, ...]:
    return lock(target, "onnxport_lock: 1\n" + laughs(12))


@attack(2, "pipeline.lock", "alias")
def lock_that_holds_itself(target: Target) -> tuple[str, ...]:
    return lock(target, "onnxport_lock: 1\npipeline: &a [*a]\n")


@attack(2, "pipeline.lock", "not valid YAML")
def lock_with_an_object_of_python(target: Target) -> tuple[str, ...]:
    return lock(target, "onnxport_lock: !!python/object/apply:os.system ['touch ../pwned']\n")


@attack(2, "pipeline.lock is not a lock", "larger than 8,388,608 bytes", "--limit lock-bytes=")
def lock_of_many_megabytes(target: Target) -> tuple[str, ...]:
    return lock(target, "onnxport_lock: 1\n" + "# x\n" * 3_000_000)


@attack(2, "pipeline.lock")
def lock_of_ten_thousand_brackets(target: Target) -> tuple[str, ...]:
    return lock(target, "onnxport_lock: " + "[" * 10_000 + "]" * 10_000)


# ---- caches


def entry(target: Target, **changes: object) -> tuple[str, ...]:
    """A signed entry of the cache, as somebody with the source of onnxport can write it."""
    pipeline(target, HEAD + TARGETS)
    key = "ab" * 32
    folder = target.folder / ".onnxport" / "stages" / key[:2] / key
    folder.mkdir(parents=True)
    (folder / "model.ort").write_bytes(b"bytes")
    said = {
        "form": 2,
        "key": key,
        "node": "digits/server",
        "main": "model.ort",
        "files": {"model.ort": hashlib.sha256(b"bytes").hexdigest()},
        "report": {},
        "inputs": {},
        **changes,
    }
    (folder / "entry.json").write_text(json.dumps({**said, "digest": digest_of_value(said)}))
    return ("cache", "list")


@attack(0)
def entry_without_a_report(target: Target) -> tuple[str, ...]:
    return entry(target)


@attack(0)
def entry_of_a_file_elsewhere(target: Target) -> tuple[str, ...]:
    digest = hashlib.sha256(target.secret.read_bytes()).hexdigest()
    return entry(target, main="../../../../../secret.bin", files={"../../../../../secret.bin": digest})


@attack(0)
def entry_of_another_form(target: Target) -> tuple[str, ...]:
    return entry(target, files=[], main=5, report=[], node={"a": 1})


@attack(0)
def entry_with_a_name_that_clears_the_terminal(target: Target) -> tuple[str, ...]:
    return entry(target, node="\x1b[2J\n::error::forged")


def _linked_cache(target: Target, link: str) -> None:
    """A project whose cache is a link to folders of the user's that look like entries and leftovers."""
    folder = target.folder.parent / "victim"
    for name in ("ab/cdef/source.c", "new/old/source.c", "ab/source.c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("int main;")
    os.utime(folder / "new" / "old", (0, 0))
    place = target.folder / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(
        folder / "ab" if place.name == "ab" else folder / "new" if place.name == "new" else folder
    )
    shutil.copy(DIGITS, target.folder)
    (target.folder / "pipeline.yaml").write_text(
        "version: 1\nmodel: digits.onnx\ntargets: {server: {to: ort}}\n"
    )


_LINKS = (".onnxport", ".onnxport/stages", ".onnxport/stages/ab", ".onnxport/stages/new", ".onnxport/timings")


_CACHE_COMMANDS = (
    *("cache list", "cache prune --size 1kB", "cache clear"),
    *("plan pipeline.yaml", "run pipeline.yaml"),
)


@pytest.mark.parametrize("link", _LINKS)
@pytest.mark.parametrize("command", _CACHE_COMMANDS)
def test_a_cache_that_is_a_link_is_refused(link: str, command: str, target: Target) -> None:
    _linked_cache(target, link)
    target.refuses(4, tuple(command.split()), "is a link", "$ONNXPORT_CACHE")


def test_a_damaged_archive_of_a_remote_cache_is_no_entry(tmp_path: Path) -> None:
    """Whatever its headers say: the run makes the product itself."""
    entry = tmp_path / "entry"
    entry.mkdir()
    (entry / "entry.json").write_text("{}")
    (entry / "m\u00e9.onnx").write_bytes(bytes(300))
    shared_cache._pack(entry, tmp_path / "valid.zip")
    valid = (tmp_path / "valid.zip").read_bytes()
    read = 0
    for seed in range(400):
        chance = random.Random(seed)
        (tmp_path / "a.zip").write_bytes(headers(headers(valid, chance), chance))
        room = tmp_path / str(seed)
        room.mkdir()
        with contextlib.suppress(*shared_cache.DAMAGED):
            shared_cache._unpack(tmp_path / "a.zip", room)
            read += 1
    assert 0 < read < 300


def test_a_cached_calibration_runs_no_code(tmp_path: Path) -> None:
    """Its reader knows a few classes; a dotted name would lead through a module to what that imports."""

    class Direct:
        def __reduce__(self) -> tuple[object, ...]:
            return eval, (f"__import__('os').mkdir({str(tmp_path / 'pwned')!r})",)

    def text(content: str) -> bytes:
        return b"\x8c" + bytes([len(content)]) + content.encode()

    def named(name: str) -> bytes:
        """A pickle by hand of what our module has under a name."""
        return b"\x80\x04" + text("onnxport.quantize.calibration.cache") + text(name) + b"\x93"

    called = named("os.system") + text(f"touch {tmp_path}/pwned") + b"\x85R."
    plain = named("contextlib") + b"."
    for payload in (pickle.dumps(Direct()), pickle.dumps(Evil(tmp_path)), called, plain):
        with pytest.raises(pickle.UnpicklingError):
            _decode(_FORM + hashlib.sha256(payload).digest() + payload)
    assert not (tmp_path / "pwned").exists()


# ---- reports

NAME = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>|`*[a](javascript:alert(3))\x1b[31m\n::error::forged"


@pytest.fixture
def reports(target: Target) -> dict[str, str]:
    """Reports of a validation of a model whose every name is NAME."""
    import onnx
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(NAME + end, TensorProto.FLOAT, [1, 4]) for end in "xy"]
    node = helper.make_node("Relu", [NAME + "x"], [NAME + "y"], NAME)
    model = helper.make_model(
        helper.make_graph([node], NAME, ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
        producer_name=NAME,
    )
    onnx.save(model, target.folder / "bad.onnx")
    forms = ("html", "md", "xml", "json", "sarif")
    arguments = [word for form in forms for word in ("--report", f"out.{form}")]
    run = target.run("validate", "bad.onnx", "bad.onnx", *arguments, timeout=120)
    assert not run.code, run.stderr
    assert all(line.isprintable() for line in run.stdout.split("\n"))
    return {form: (target.folder / f"out.{form}").read_text() for form in forms}


def test_names_are_text_in_every_report(reports: dict[str, str]) -> None:
    page = reports["html"]
    assert "alert(1)" in page, "the name is not there at all"
    assert not re.search(r"<(img|script)\b", page, re.IGNORECASE)
    assert not re.search(r"<[^>]*\son\w+\s*=", page), "an inline event handler"
    assert not re.search(r"<[^>]*\s(style|href|src)\s*=\s*[\"']?\s*javascript:", page, re.IGNORECASE)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.search(r"(?<!\\)<(img|script)", reports["md"])
    assert "<img" not in reports["xml"]
    for form, text in reports.items():
        assert "\x1b" not in text, form
        assert not re.search(r"^\s*::error", text, re.MULTILINE), form
    json.loads(reports["json"])
    json.loads(reports["sarif"])


INJECTED = {"line": "\nevil: 1 #", "separator": "\u2028evil: 1 #", "long line": f"{'long ' * 2500}evil: 1 #"}


@pytest.mark.parametrize("kind", INJECTED)
def test_names_write_nothing_into_a_first_pipeline(kind: str, target: Target) -> None:
    """`init` writes names of the model into comments of a file that is a program."""
    written = []
    for end in (INJECTED[kind], ""):
        _stateful(target.folder / "digits.onnx", end)
        run = target.run("init", "digits.onnx", "--ci", "none", "-o", "pipeline.yaml", "--force")
        assert not run.code, run.stderr
        written.append((target.folder / "pipeline.yaml").read_text())
    attacked, expected = written
    assert yaml.safe_load(attacked) == yaml.safe_load(expected)
    assert len(attacked.splitlines()) <= len(expected.splitlines())


def _stateful(file: Path, end: str) -> None:
    """Write a model with open sizes, a state and a node that TFLite refuses, all of whose names have an `end`."""
    import onnx
    from onnx import TensorProto, helper

    float_, string = TensorProto.FLOAT, TensorProto.STRING
    inputs = [helper.make_tensor_value_info(f"{name}{end}", float_, [f"N{end}", 4]) for name in ("x", "h_in")]
    outputs = [helper.make_tensor_value_info(f"h_out{end}", float_, [f"N{end}", 4])]
    words, twice = (
        helper.make_tensor_value_info(f"{name}{end}", string, ["M"]) for name in ("words", "twice")
    )
    nodes = [
        helper.make_node("Add", [each.name for each in inputs], [outputs[0].name], f"add{end}"),
        helper.make_node("StringConcat", [words.name, words.name], [twice.name], f"text{end}"),
    ]
    graph = helper.make_graph(nodes, "graph", [*inputs, words], [*outputs, twice])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), file)


@attack(2, "the path xxx", "... cannot be used: File name too long; give a shorter one")
def report_with_a_name_that_no_disk_takes(target: Target) -> tuple[str, ...]:
    return pipeline(target, f"{HEAD}{TARGETS}reports: [{'x' * 5000}]\n")


@pytest.mark.parametrize("name", CASES)
def test_text_attack_is_refused_or_harmless(name: str, target: Target) -> None:
    case = CASES[name]
    target.refuses(case.code, case.prepare(target), *case.says)


def test_a_valid_pipeline_passes(target: Target) -> None:
    """So that a refusal above is of the attack."""
    target.refuses(0, pipeline(target, HEAD + TARGETS))
