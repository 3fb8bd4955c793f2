"""Vulkan drivers that hang, crash or have no device: C stubs that stand for libvulkan.so.1."""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.core.errors import MACHINE_FAILED, MISSING_DEPENDENCY

# What vkCreateInstance does.
STUBS = {
    "hangs": "for (;;) pause();",
    "crashes": "abort();",
    "has no device": "return 0;",
    "refuses": "return -9;",  # VK_ERROR_INCOMPATIBLE_DRIVER
}
SOURCE = """
#include <stdlib.h>
#include <unistd.h>
int vkCreateInstance(void *info, void *allocator, void **instance) {{ {body} }}
int vkEnumeratePhysicalDevices(void *instance, unsigned *count, void **devices) {{ *count = 0; return 0; }}
"""
ASK = """
import sys
from onnxport.core.errors import OnnxportError
from onnxport.runtimes import vulkan
vulkan._SECONDS = 1
vulkan._FALLBACK = vulkan.Path("nowhere")
try:
    vulkan.open_vulkan(sys.argv[1])
except OnnxportError as error:
    print(error)
    sys.stdout.flush()
    import os
    os._exit(error.exit_code)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Callable[[str], Path]:
    """Return a builder of folders with a driver that does what STUBS says."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("building a driver takes a C compiler on Linux")

    def build(name: str) -> Path:
        source = tmp_path / "driver.c"
        source.write_text(SOURCE.format(body=STUBS[name]))
        library = tmp_path / "libvulkan.so.1"
        command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libvulkan.so.1", "-o", library, source]
        subprocess.run(command, check=True)
        return tmp_path

    return build


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("hangs", MACHINE_FAILED, "hung: it counted no devices within 1 s"),
        ("has no device", MISSING_DEPENDENCY, "has no device"),
        ("refuses", MISSING_DEPENDENCY, "has no device"),
    ],
)
def test_a_driver_that_is_no_use_is_one_sentence(
    name: str, code: int, said: str, driver: Callable[[str], Path]
) -> None:
    folder = driver(name)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert asked.returncode == code, asked.stderr
    assert f"the Vulkan driver in {folder} {said}" in asked.stdout
    assert "vulkan=DIR" in asked.stdout


def test_without_any_driver_the_command_that_installs_one_is_said() -> None:
    if ctypes.util.find_library("vulkan"):
        pytest.skip("the system has a Vulkan of its own")
    asked = subprocess.run(
        [sys.executable, "-c", ASK, ""], capture_output=True, text=True, timeout=60, check=False
    )
    assert asked.returncode == MISSING_DEPENDENCY, asked.stderr
    assert "there is no Vulkan device; run: apt-get install" in asked.stdout
