"""What starting costs: the number of modules that a command imports, which is the same on every machine.

The processor time of the same imports is asked by `-m exhaustive` alone, on a machine that nobody else uses: caches and
cores that others share made it a third longer.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
ROUNDS = 12

HEAVY = {
    "ai_edge_litert",
    "coremltools",
    "jinja2",
    "litert_converter",
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "rich",
    "sklearn",
    "sympy",
    "tensorflow",
    "torch",
    "yaml",
}
ONNXPORT = (sys.executable, "-m", "onnxport")
CLICK = (sys.executable, "-c", "import click")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment(), cwd=cwd, timeout=120
    )


# Arguments of `onnxport` to the number of modules that they may import, a tenth above those of 2026-11-28.
START = {("--help",): 120, ("--version",): 110, ("convert", "--help"): 280, ("quantize", "--help"): 270}

# Arguments of `onnxport` to how often the time of `import click` they may take.
LIMITS = {("--help",): 2.5, ("--version",): 2.5, ("convert", "--help"): 4.5, ("quantize", "--help"): 4.5}

# The same of 1.1 seconds where `import click` takes 0.0385 s, as it did where the budget was set. Processors differ:
# the same imports were 22 to 24 times it on one, 24 to 26 on an AMD EPYC. A machine that others use at the same time
# is slower by up to a third for minutes, in both.
A_SECOND = 29.0
_LEAST_ROUNDS, _ROUNDS = 2, 12


@pytest.fixture(scope="module")
def ratios() -> dict[tuple[str, ...], float]:
    """The best time of each command over the best of `import click`, all measured in turns."""
    commands = {arguments: (*ONNXPORT, *arguments) for arguments in LIMITS} | {(): CLICK}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(ROUNDS):
        for arguments, command in commands.items():
            best[arguments] = min(best[arguments], processor_seconds(command))
    return {arguments: best[arguments] / best[()] for arguments in LIMITS}


def processor_seconds(command: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", START, ids=" ".join)
def test_start_imports_few_modules(arguments: tuple[str, ...]) -> None:
    check_number(imported_by(*arguments), START[arguments])


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", LIMITS, ids=" ".join)
def test_start_costs_little_more_than_click(
    arguments: tuple[str, ...], ratios: dict[tuple[str, ...], float]
) -> None:
    print(f"onnxport {' '.join(arguments)}: {ratios[arguments]:.2f} times `import click`")
    assert ratios[arguments] <= LIMITS[arguments]


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-X", "importtime", "-c", "import onnxport"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "--help"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "convert", "--help"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "quantize", "--help"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "export", "--help"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "validate", "--help"),
        (sys.executable, "-X", "importtime", "-m", "onnxport", "doctor"),
    ],
    ids=lambda command: " ".join(command[3:]),
)
def test_no_library_is_imported(command: tuple[str, ...]) -> None:
    imported = {name.partition(".")[0] for name, _ in imports(run(*command).stderr)}
    assert "onnxport" in imported
    assert not imported & HEAVY


# Arguments of a command on `DIGITS`, the suffix of its file, and the number of modules that it may import.
WORK = {
    "tflite": (("convert", str(DIGITS), "--to", "tflite"), ".tflite", 800),
    "coreml": (("convert", str(DIGITS), "--to", "coreml"), ".mlpackage", 815),
    "ort": (("convert", str(DIGITS), "--to", "ort"), ".ort", 865),
    "int8": (("quantize", str(DIGITS), "--int8", "--calib", str(DIGITS.with_name("test.npz"))), ".onnx", 880),
    "fp16": (("quantize", str(DIGITS), "--fp16"), ".onnx", 845),
}


@pytest.mark.parametrize("name", WORK)
def test_work_imports_few_modules(name: str, tmp_path: Path) -> None:
    """In the command's own process; the compiler's child imports while this one works."""
    arguments, suffix, most = WORK[name]
    found = imported_by(*arguments, "-o", str(tmp_path / f"digits{suffix}"), "--quiet")
    assert {"onnx_ir", "onnxport.pipelines.runner.steps"} <= found
    check_number(found, most)


def test_a_proof_on_generated_inputs_imports_no_readers_of_samples(tmp_path: Path) -> None:
    arguments, suffix, _ = WORK["tflite"]
    found = imported_by(*arguments, "-o", str(tmp_path / f"digits{suffix}"), "--quiet")
    assert "onnxport.validate.input_sets" in found
    assert not {"onnxport.samples.readers", "onnxport.samples.images", "onnxport.samples.audio"} & found


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WORK)
def test_work_spends_at_most_a_second_on_imports(name: str, tmp_path: Path) -> None:
    arguments, suffix, _ = WORK[name]
    check_imports(*arguments, "-o", str(tmp_path / f"digits{suffix}"))


def imported_by(*arguments: str) -> set[str]:
    return {
        name for name, _ in imports(run(sys.executable, "-X", "importtime", *ONNXPORT[1:], *arguments).stderr)
    }


def check_number(found: set[str], most: int) -> None:
    packages = Counter(name.partition(".")[0] for name in found)
    assert len(found) <= most, f"{len(found)} modules: {packages.most_common(12)}"


def test_core_ml_s_builder_comes_without_the_frameworks_that_it_looks_for() -> None:
    """coremltools imports whichever of them is installed: nine seconds of every conversion."""
    program = (
        "import sys, onnxport.converters.coreml.worker\n"
        "assert 'coremltools' in sys.modules\n"
        "print(*{'torch', 'tensorflow', 'sklearn', 'xgboost'} & set(sys.modules))"
    )
    assert run(sys.executable, "-c", program).stdout.split() == []


# The module that a child serves -> packages of which it has no use, and the number of modules that it may import.
CHILDREN = {
    "onnxport.converters.tflite.worker": (
        {"pydantic", "onnxruntime", "click", "ai_edge_litert.interpreter"},
        590,
    ),
    "onnxport.runtimes.ort.runtime": ({"pydantic", "onnx", "onnx_ir", "click"}, 285),
}


@pytest.mark.parametrize("module", CHILDREN)
def test_a_child_imports_few_modules(module: str) -> None:
    useless, most = CHILDREN[module]
    program = f"import onnxport.core.child_server, {module}, sys; print(*sys.modules)"
    found = set(run(sys.executable, "-c", program).stdout.split())
    assert not useless & found
    assert not {name for name in found if name.startswith("onnxport.optimizers.rewrites")}
    check_number(found, most)


def test_an_export_leaves_the_framework_to_its_own_process(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "def build():\n"
        "    from sklearn.linear_model import LinearRegression\n"
        "    return LinearRegression().fit([[0.0], [1.0]], [1, 2])\n"
    )
    command = (*ONNXPORT, "export", "models:build", "--samples", "1")
    imported = imports(run(command[0], "-X", "importtime", *command[1:], cwd=tmp_path).stderr)
    packages = {name.partition(".")[0] for name, _ in imported}
    assert (tmp_path / "build.onnx").exists()
    assert "onnx_ir" in packages
    assert not packages & {"torch", "tensorflow", "sklearn", "skl2onnx", "scipy", "pandas", "xgboost"}


def check_imports(*arguments: str) -> None:
    """Runs the command and then imports what it imported."""
    command = (sys.executable, "-X", "importtime", "-m", "onnxport", *arguments, "--quiet")
    found = imports(run(*command).stderr)
    names = dict.fromkeys(
        name if name.startswith("onnxport") else name.partition(".")[0] for name, _ in found
    )
    # The same imports again, in one thread and nothing between them.
    program = (
        "import contextlib, importlib, sys, time\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(ImportError):  # what others try and do without, such as gmpy2\n"
        "        importlib.import_module(name)\n"
        "assert 'onnxruntime' in sys.modules and 'onnx_ir' in sys.modules\n"
        "print(time.process_time())\n"
    )
    modules = [name for name in names if name not in sys.stdlib_module_names]
    spent, click = float("inf"), float("inf")
    # The least of few rounds is off by a fifth on a machine whose neighbours compute; both sides settle with more.
    for number in range(_ROUNDS):
        spent = min(spent, float(run(sys.executable, "-c", program, *modules).stdout))
        click = min(click, processor_seconds(CLICK))
        if number >= _LEAST_ROUNDS and spent / click <= A_SECOND:
            break
    print(f"{' '.join(arguments)}: {spent:.2f} s on imports, {spent / click:.1f} times `import click`")
    assert spent / click <= A_SECOND


def imports(stderr: str) -> list[tuple[str, int]]:
    """Module and its own microseconds, from what `-X importtime` prints; two threads may share a line."""
    entries = re.finditer(r"import time: +(\d+) \| +\d+ \| +([\w.]+?)(?=import time|\s|\Z)", stderr)
    return [(entry.group(2), int(entry.group(1))) for entry in entries]
