"""The Vulkan driver that GPU runtimes run on: a GPU's, or one in software.

`python -m onnxport.runtimes.vulkan` exits with 0 where there is a device; `doctor` asks so, since drivers can crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

from onnxport.core.errors import MachineError, MissingDependencyError, UsageError

# Debian's package chromium-common: a Vulkan loader and SwiftShader, a device in software.
_FALLBACK = Path("/usr/lib/chromium")
_LOADER = "libvulkan.so.1"
_CREATE_INSTANCE = 1  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
_SECONDS = 20
_INSTALL = "run: apt-get install --no-install-recommends chromium-common"
_OTHER_DRIVER = "name the folder of one that works with --candidate-runtime vulkan=DIR (docs/guide/gpu.md)"


def load_vulkan(folder: str = "") -> ctypes.CDLL | None:
    """Load a Vulkan loader into the process: that of `folder`, of the system, or of Debian's Chromium.

    Runtimes ask the process for libvulkan.so.1, and the loader asks VK_DRIVER_FILES for the driver.

    Returns:
        The loader; None where there is none.

    Raises:
        UsageError: `folder` has no loader.
    """
    if not folder:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(_LOADER, mode=ctypes.RTLD_GLOBAL)
    place = Path(folder) if folder else _FALLBACK
    if manifests := sorted(place.glob("*_icd*.json")):
        os.environ["VK_DRIVER_FILES"] = os.pathsep.join(map(os.fspath, manifests))
    try:
        return ctypes.CDLL(os.fspath(place / _LOADER), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        if folder:
            fix = f"name a folder with {_LOADER} and its driver's manifest (docs/guide/gpu.md)"
            raise UsageError(f"vulkan={folder} has no Vulkan loader", why=str(error), fix=fix) from error
        return None


class _InstanceInfo(ctypes.Structure):
    """VkInstanceCreateInfo (Vulkan 1.3, section 4.2)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layers", ctypes.c_uint32),
        ("layer_names", ctypes.c_void_p),
        ("extensions", ctypes.c_uint32),
        ("extension_names", ctypes.c_void_p),
    )


def count_devices(folder: str = "") -> int:
    """Return how many devices the Vulkan drivers have."""
    vulkan = load_vulkan(folder)
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    if vulkan is None or vulkan.vkCreateInstance(
        ctypes.byref(_InstanceInfo(_CREATE_INSTANCE)), None, ctypes.byref(instance)
    ):
        return 0
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    return count.value


def open_vulkan(folder: str = "") -> None:
    """Load Vulkan as `load_vulkan` does, and ask for its devices.

    Raises:
        UsageError: `folder` has no loader.
        MissingDependencyError: there is no device.
        MachineError: the driver does not answer.
    """
    load_vulkan(folder)
    if not sys.platform.startswith("linux"):
        return
    counted: list[int] = []
    # A driver that hangs keeps the thread, which ends with the process.
    asking = threading.Thread(target=lambda: counted.append(count_devices(folder)), daemon=True)
    asking.start()
    asking.join(_SECONDS)
    place = f"the Vulkan driver in {folder}" if folder else "the Vulkan driver"
    if not counted:
        why = f"it counted no devices within {_SECONDS} s"
        raise MachineError(f"{place} hung", why=why, fix=f"reinstall it, or {_OTHER_DRIVER}")
    if not counted[0]:
        what = f"{place} has no device" if folder else "there is no Vulkan device"
        raise MissingDependencyError(what, fix=f"{_INSTALL}, or {_OTHER_DRIVER}")


def lacking() -> str:
    """Return what GPU runtimes lack here; empty for nothing, and on systems whose GPUs have another interface."""
    if not sys.platform.startswith("linux"):
        return ""
    command = [sys.executable, "-m", __name__]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "a Vulkan driver that answers"
    return "a Vulkan device" if asked.returncode else ""


if __name__ == "__main__":
    sys.exit(0 if count_devices() else 1)
