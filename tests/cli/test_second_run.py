"""The same `onnxport run` on unchanged files is answered by its receipt; any change has the engine run."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import load, save

from tests.cli.sandbox import DIGITS, ROOT, Outcome, Sandbox

RUN = ("run", "pipeline.yaml")
PIPELINE = """
version: 1
include: common.yaml
models: {digits: digits.onnx, more: 'nets/*.onnx'}
stages: {lean: {use: optimize}}
targets:
  server: {to: ort, matrix: {level: [basic, all]}, models: [digits]}
  plain: {to: onnx, from: lean, models: [more]}
"""
PACKAGES = """
version: 1
model: digits.onnx
targets:
  phone: {to: tflite}
  mac: {to: coreml}
"""
COMMON = "validate: {inputs: samples, seed: '${SEED:-1}'}\n"
METRIC = """
import onnxport


@onnxport.metric(better="lower")
def shift(reference, candidate):
    return 0.0  # one
"""
# Each command that loads click, which comes before the engine, writes a line; with OPENED also each file it opens.
HOOK = """
import os, sys
def _log(event, arguments):
    if _busy:
        return
    if event == "import" and arguments[0] == "onnxport.cli.commands":
        with _open(os.environ["ENGINES"], "a") as file:
            file.write("engine\\n")
    if "OPENED" in os.environ and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if event != "open" or not (arguments[2] & 3):
            try:
                with _open(os.environ["OPENED"], "a") as file:
                    file.write(os.path.abspath(arguments[0]) + "\\n")
            except OSError:  # in a confined child
                pass
_busy = False
def _open(name, mode):
    global _busy
    _busy = True
    try:
        return open(name, mode)
    finally:
        _busy = False
sys.addaudithook(_log)
"""


class Project(Sandbox):
    """A sandbox with a pipeline that reads as many kinds of files as it can, and a log of the engine's runs."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.log = root / "engines"
        self.log.touch()
        self.patch(HOOK)
        self.home = root / "home"
        self.environment.pop("ONNXPORT_CACHE", None)
        self.environment |= {"ENGINES": str(self.log), "XDG_CACHE_HOME": str(self.home)}
        self.model.rename(self.folder / "digits.onnx")
        (self.folder / "pipeline.yaml").write_text(PIPELINE)
        (self.folder / "common.yaml").write_text(COMMON)
        self._write_models()
        self._write_samples()
        site = root / "hooks" / "acme_notes-1.0.dist-info"
        site.mkdir()
        (site / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-notes\nVersion: 1.0\n")
        for file in [*self.folder.rglob("*"), site / "METADATA", site.parent]:
            os.utime(file, ns=(10**18, 10**18 + 1))  # long before, and no whole second

    def _write_models(self) -> None:
        folder = self.folder / "nets"
        folder.mkdir()
        save(
            load(DIGITS),
            folder / "wide.onnx",
            save_as_external_data=True,
            location="wide.bin",
            size_threshold=0,
        )

    def _write_samples(self) -> None:
        folder = self.folder / "samples"
        folder.mkdir()
        images = np.load(DIGITS.with_name("test.npz"))["image"]
        for number in range(3):
            np.save(folder / f"{number}.npy", images[number : number + 1])

    @property
    def engines(self) -> int:
        """How many commands have run the engine."""
        return self.log.read_text().count("engine")

    def receipts(self) -> list[Path]:
        return sorted(self.home.glob("onnxport/receipts/*.json"))

    def is_short(self, *arguments: str) -> bool:
        """Run the pipeline; return whether its receipt answered."""
        before = self.engines
        outcome = self.run(*(arguments or RUN))
        assert outcome.code == 0, outcome.stderr
        return self.engines == before

    def settle(self) -> None:
        """Run until a receipt answers."""
        assert any(self.is_short() for _ in range(3)), "no run left a receipt"


def replaced(file: Path, old: bytes, new: bytes) -> None:
    """Write other bytes of the same number in place, and give the file the time that it had."""
    content, before = file.read_bytes(), file.stat()
    assert old in content
    assert len(old) == len(new)
    with file.open("r+b") as stream:
        stream.write(content.replace(old, new, 1))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def flipped(file: Path, offset: int, *, keeps_time: bool = True) -> None:
    """Flip a bit in place, and give the file the time that it had."""
    before, content = file.stat(), bytearray(file.read_bytes())
    content[offset] ^= 1
    with file.open("r+b") as stream:
        stream.write(content)
    if keeps_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("second"))


@pytest.mark.parametrize(
    "options", [(), ("-q",), ("-v",), ("--jobs", "2"), ("--target", "server"), ("--json",)]
)
def test_second_run_says_what_the_engine_says(project: Project, options: tuple[str, ...]) -> None:
    assert not project.is_short(*RUN, *options)
    before, files = project.engines, project.contents()
    short = project.run(*RUN, *options)
    assert project.engines == before
    engine = project.run(*RUN, *options, "--paranoid")
    assert project.engines == before + 1
    assert _without_time(short) == _without_time(engine)
    assert project.contents() == files
    assert project.is_short(*RUN, *options)


def _without_time(outcome: Outcome) -> tuple[object, ...]:
    """Return code and texts of a run without its duration and its arguments."""
    if outcome.stdout.startswith("{"):
        document = outcome.document
        assert document.pop("seconds") < 5
        document.pop("arguments")
        return outcome.code, json.dumps(document, indent=2), outcome.stderr
    text, _, seconds = outcome.stdout.partition(" from the cache; ")
    assert not outcome.stdout or seconds[0] in "01234"
    return outcome.code, text, seconds.partition(" s\n")[2], outcome.stderr


def test_every_file_that_the_engine_opens_in_the_project_is_in_the_receipt(project: Project) -> None:
    project.settle()
    vouched = {name for each in project.receipts() for name in json.loads(each.read_text())["files"]}
    opened = project.folder.parent / "opened"
    project.environment["OPENED"] = str(opened)
    try:
        assert not project.is_short(*RUN, "--paranoid")
    finally:
        del project.environment["OPENED"]
    read = {name for name in opened.read_text().split("\n") if name.startswith(f"{project.folder}/")}
    # The engine lists folders of artefacts and of the cache, and opens files of its own there.
    own = re.compile(r"/(build|\.onnxport/stages)(/[^.]+)?$|/\.onnxport/stages/new/|/\.onnxport-\d")
    missed = {name for name in read - vouched if os.path.exists(name) and not own.search(name)}
    names = {Path(name).name for name in read & vouched}
    assert names >= {
        "pipeline.yaml",
        "common.yaml",
        "digits.onnx",
        "wide.bin",
        "1.npy",
        "samples",
        "nets",
    }
    assert not missed


def _add_sample(project: Project) -> None:
    shutil.copy(project.folder / "samples/0.npy", project.folder / "samples/3.npy")


def _remove_sample(project: Project) -> None:
    (project.folder / "samples/2.npy").unlink()


def _add_model(project: Project) -> None:
    shutil.copy(DIGITS, project.folder / "nets/another.onnx")


def _remove_output(project: Project) -> None:
    (project.folder / "build/digits/server-all.ort").unlink()


def _remove_lock(project: Project) -> None:
    (project.folder / "pipeline.lock").unlink()


def _clear_cache(project: Project) -> None:
    assert project.run("cache", "clear", "pipeline.yaml").code == 0


def _install(project: Project) -> None:
    new = project.folder.parent / "hooks/acme_other-1.0.dist-info"
    new.mkdir()
    (new / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-other\nVersion: 1.0\n")


def _entry(project: Project, suffix: str) -> Path:
    return next((project.folder / ".onnxport/stages").rglob(f"*{suffix}"))


CHANGES: Mapping[str, Callable[[Project], None]] = {
    "pipeline": lambda p: replaced(
        p.folder / "pipeline.yaml", b"level: [basic, all]", b"level: [all, basic]"
    ),
    "included file": lambda p: replaced(p.folder / "common.yaml", b"SEED:-1", b"SEED:-2"),
    "model": lambda p: flipped(p.folder / "digits.onnx", 20_000),
    "external data": lambda p: flipped(p.folder / "nets/wide.bin", 20_000),
    "model of a pattern": _add_model,
    "sample": lambda p: flipped(p.folder / "samples/1.npy", 200),
    "sample added": _add_sample,
    "sample removed": _remove_sample,
    "artefact": lambda p: flipped(p.folder / "build/digits/server-all.ort", 20_000),
    "artefact removed": _remove_output,
    "file beside an artefact": lambda p: flipped(
        next((p.folder / "build/digits").glob("*.required_operators.config")), 3
    ),
    "lock": lambda p: replaced(p.folder / "pipeline.lock", b"# Written by", b"# written by"),
    "lock removed": _remove_lock,
    "cache cleared": _clear_cache,
    "cached file": lambda p: flipped(_entry(p, ".ort"), 20_000, keeps_time=False),
    "note of a cached file": lambda p: replaced(_entry(p, "entry.json"), b'"form"', b'"from"'),
    "version": lambda p: replaced(
        p.folder.parent / "hooks/acme_notes-1.0.dist-info/METADATA", b"1.0", b"1.1"
    ),
    "new package": _install,
}


@pytest.mark.parametrize("change", CHANGES)
def test_engine_runs_after_a_change_of(change: str, project: Project) -> None:
    project.settle()
    CHANGES[change](project)
    assert not project.is_short()


@pytest.fixture
def small(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (project.folder / "pipeline.yaml").write_text(
        "version: 1\nmodel: digits.onnx\ntargets: {server: {to: ort}}\n"
    )
    return project


def test_tflite_and_a_package_are_answered_for_and_each_file_of_it_counts(small: Project) -> None:
    (small.folder / "pipeline.yaml").write_text(PACKAGES)
    assert not small.is_short()
    assert small.is_short()
    package = small.folder / "build/digits/mac.mlpackage"
    (package / "Data/note.txt").write_text("a file that no package has")
    assert not small.is_short()
    assert not (package / "Data/note.txt").exists()
    small.settle()
    flipped(package / "Manifest.json", 3)
    assert not small.is_short()
    small.settle()
    flipped(small.folder / "build/digits/phone.tflite", 20_000)
    assert not small.is_short()


def test_metric_counts_and_what_would_be_imported_in_its_place(small: Project) -> None:
    (small.folder / "own.py").write_text(METRIC)
    text = "version: 1\nmodel: digits.onnx\nvalidate: {metric: [own:shift], budget: {shift: 1}}\n"
    (small.folder / "pipeline.yaml").write_text(text + "targets: {server: {to: ort}}\n")
    small.settle()
    replaced(small.folder / "own.py", b"# one", b"# two")
    assert "; 1 made;" in small.run(*RUN).stdout
    small.settle()
    (small.folder / "own").mkdir()
    (small.folder / "own/__init__.py").write_text(METRIC)
    assert "; 1 made;" in small.run(*RUN).stdout


def test_artefact_that_is_written_right_after_the_run_is_noticed(small: Project) -> None:
    output = small.folder / "build/digits/server.ort"
    small.settle()
    right = output.read_bytes()
    for number in range(3):
        (small.folder / "pipeline.lock").unlink()
        assert not small.is_short()
        flipped(output, 10_000 + number)
        assert not small.is_short()
        assert output.read_bytes() == right


def test_environment_counts_but_for_what_a_shell_counts(small: Project) -> None:
    small.settle()
    for name in ("OLDPWD", "SHLVL", "_"):
        small.environment[name] = "another"
        assert small.is_short()
    small.environment["ANY"] = "another"
    assert not small.is_short()
    small.settle()
    text = "version: 1\nmodel: '${OLDPWD:-digits.onnx}'\ntargets: {server: {to: ort}}\n"
    (small.folder / "pipeline.yaml").write_text(text)
    small.environment["OLDPWD"] = "digits.onnx"
    assert [small.is_short() for _ in range(3)] == [False] * 3


def test_other_folder_or_spelling_is_another_command(small: Project) -> None:
    small.settle()
    assert not small.is_short("run", "./pipeline.yaml")
    moved = small.folder.rename(small.folder.with_name("moved"))
    shutil.copytree(moved, small.folder)
    assert not small.is_short()


@pytest.mark.parametrize(
    "options",
    [
        *(("--paranoid",), ("--frozen",), ("--no-cache",), ("--update-sources",), ("--report", "r.json")),
        *(("--annotations", "github"), ("--remote-cache", "memory://here")),
    ],
)
def test_run_that_reads_or_writes_more_leaves_no_receipt(options: tuple[str, ...], small: Project) -> None:
    small.settle()
    left = small.receipts()
    assert [small.is_short(*RUN, *options) for _ in range(2)] == [False] * 2
    assert small.receipts() == left


@pytest.mark.parametrize(
    "more", ["reports: [out.json]", "targets: {server: {to: ort, max_latency: 10s}}", "diagnose: false"]
)
def test_pipeline_that_writes_reports_or_measures_leaves_no_receipt(more: str, small: Project) -> None:
    text = "version: 1\nmodel: digits.onnx\n" + (
        more if "targets" in more else f"targets: {{server: {{to: ort}}}}\n{more}"
    )
    (small.folder / "pipeline.yaml").write_text(text + "\n")
    short = [small.is_short() for _ in range(3)]
    assert short == [False, more == "diagnose: false", more == "diagnose: false"]


def test_failed_run_leaves_no_receipt(small: Project) -> None:
    text = "version: 1\nmodel: digits.onnx\ntargets: {server: {to: ort, max_size: 1kB}}\n"
    (small.folder / "pipeline.yaml").write_text(text)
    for _ in range(2):
        assert small.run(*RUN).code == 1
    assert small.engines == 2
    assert not small.receipts()


def test_onnx2tf_that_comes_to_path_is_noticed(small: Project) -> None:
    (small.folder / "pipeline.yaml").write_text(
        "version: 1\nmodel: digits.onnx\ntargets: {phone: {to: tflite}}\n"
    )
    programs = small.folder.parent / "programs"
    programs.mkdir()
    small.environment["PATH"] = f"{programs}{os.pathsep}{small.environment['PATH']}"
    small.settle()
    for name in ("onnx2tf", "onnxsim"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    assert [small.is_short() for _ in range(3)] == [False] * 3


def test_plugin_counts_with_its_code(small: Project) -> None:
    site = small.folder.parent / "hooks"
    example = ROOT / "examples" / "plugin"
    shutil.copytree(
        example / "acme_onnxport", site / "acme_onnxport", ignore=shutil.ignore_patterns("__pycache__")
    )
    (site / "acme_onnxport" / "tables").mkdir()
    (site / "acme_onnxport" / "tables" / "one.txt").write_text("1")
    info = site / "acme_onnxport-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-onnxport\nVersion: 1.0\n")
    names = "[onnxport.stages]\nzero-weights = acme_onnxport.stages:ZERO_WEIGHTS\n"
    (info / "entry_points.txt").write_text(names)
    text = "version: 1\nmodel: digits.onnx\nstages: {sparse: {use: zero-weights, below: 1e-9}}\n"
    (small.folder / "pipeline.yaml").write_text(text + "targets: {app: {to: ort, from: sparse}}\n")
    small.settle()
    worker = site / "acme_onnxport" / "workers.py"
    replaced(worker, b'"""', b"'''")
    replaced(worker, b'"""', b"'''")
    assert not small.is_short()
    small.settle()
    replaced(site / "acme_onnxport" / "tables" / "one.txt", b"1", b"2")
    assert not small.is_short()
    small.settle()
    (site / "acme_onnxport" / "tables" / "two.txt").touch()
    assert not small.is_short()


def test_code_of_onnxport_counts(small: Project) -> None:
    site = small.folder.parent / "hooks"
    shutil.copytree(ROOT / "onnxport", site / "onnxport", ignore=shutil.ignore_patterns("__pycache__"))
    small.settle()
    replaced(site / "onnxport/converters/lowering.py", b'"""', b"'''")
    replaced(site / "onnxport/converters/lowering.py", b'"""', b"'''")
    outcome = small.run(*RUN)
    assert "; 1 made;" in outcome.stdout
    small.settle()
    (site / "onnxport/converters/new.py").touch()
    assert not small.is_short()


def test_file_that_changes_while_the_run_reads_leaves_no_receipt(small: Project) -> None:
    """The model is written while the artefact moves to its place."""
    hook = f"""
def _change(event, arguments):
    if event == "os.rename" and os.fsdecode(arguments[1]).endswith("server.ort"):
        with open({str(small.folder / "digits.onnx")!r}, "r+b") as file:
            file.seek(20_000); byte = file.read(1)[0]; file.seek(20_000); file.write(bytes([byte ^ 1]))
sys.addaudithook(_change)
"""
    small.patch(HOOK + hook)
    assert not small.is_short()
    assert not small.receipts()
    small.patch(HOOK)
    assert "; 1 made;" in small.run(*RUN).stdout


DAMAGES: Mapping[str, Callable[[str], str]] = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "deep": lambda text: "[" * 100_000,
    "a list": lambda text: "[]",
    "without files": lambda text: '{"form": 1}',
    "another form": lambda text: text.replace('"form": 1', '"form": 0'),
    "files in a list": lambda text: text.replace('"files": {', '"files": [], "more": {'),
    "short stamps": lambda text: re.sub(r"\[\d+, \d+, \d+, \d+(, \d+)?\]", "[]", text),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_receipt_is_replaced(damage: str, small: Project) -> None:
    small.settle()
    (receipt,) = small.receipts()
    right = receipt.read_text()
    receipt.write_text(DAMAGES[damage](right))
    assert not small.is_short()
    assert small.is_short()


def test_receipt_of_another_user_is_not_believed(small: Project) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    small.settle()
    os.chown(small.receipts()[0], 12345, -1)
    assert not small.is_short()


def test_streams_that_do_not_take_the_text_are_the_engines(small: Project) -> None:
    (small.folder / "pipeline.yaml").write_text(
        "version: 1\nmodels: {größe: digits.onnx}\ntargets: {server: {to: ort}}\n"
    )
    small.environment["PYTHONIOENCODING"] = "utf-8"
    small.settle()
    assert "größe" in small.run(*RUN).stdout
    small.environment["PYTHONIOENCODING"] = "ascii:strict"
    before = small.engines
    outcomes = [small.run(*RUN) for _ in range(3)]
    assert small.engines == before + 3
    assert len(set(map(_without_time, outcomes))) == 1
