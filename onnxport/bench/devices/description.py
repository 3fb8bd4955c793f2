"""The processor, the memory and the system of a device, as a bench of this machine describes them."""

from __future__ import annotations

import contextlib

from onnxport.bench.devices.connection import Device
from onnxport.bench.report import Machine
from onnxport.core.errors import printable

# Prints NAME=VALUE for whatever the system knows: Android, Linux or macOS.
_SCRIPT = """
echo "system=$(uname -srm)"
echo "machine=$(uname -m)"
echo "cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || sysctl -n hw.ncpu)"
for name in ro.product.manufacturer ro.product.model ro.soc.manufacturer ro.soc.model ro.build.version.release
do echo "$name=$(getprop $name 2>/dev/null)"; done
echo "board=$(tr -d '\\0' 2>/dev/null < /proc/device-tree/model)"
echo "brand=$(sysctl -n machdep.cpu.brand_string 2>/dev/null)"
echo "bytes=$(sysctl -n hw.memsize 2>/dev/null)"
echo "load=$(cut -d' ' -f1 /proc/loadavg 2>/dev/null)"
echo "kilobytes=$(sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo 2>/dev/null)"
for name in 'model name' Hardware Features flags
do echo "$name=$(sed -n "s/^$name[[:space:]]*: *//p" /proc/cpuinfo 2>/dev/null | head -n 1)"; done
"""


def describe(device: Device, instruction_sets: tuple[str, ...]) -> Machine:
    """Ask the device what it is; `instruction_sets` are those that matter, by their Linux names."""
    found = {
        name: " ".join(printable(value).split())
        for name, _, value in (line.partition("=") for line in device.run(_SCRIPT).output.splitlines())
    }

    def first(*names: str) -> str:
        texts = (" ".join(filter(None, (found.get(each, "") for each in name.split("+")))) for name in names)
        return next(filter(None, texts), "")

    flags = set(first("Features", "flags").split())
    cores = int(_number(found.get("cores"))) or 1
    product = first("ro.product.manufacturer+ro.product.model")
    release = found.get("ro.build.version.release")
    return Machine(
        processor=first(
            "ro.soc.manufacturer+ro.soc.model", "brand", "model name", "board", "Hardware", "machine"
        ),
        instruction_sets=" ".join(
            (found.get("machine", ""), *(name for name in instruction_sets if name in flags))
        ),
        cores=cores,
        memory=int(_number(found.get("bytes")) or 1024 * _number(found.get("kilobytes"))),
        system=f"{first('system').replace(' ', '-')}{f', Android {release}' if release else ''}",
        load=round(_number(found.get("load")) / cores, 3),
        device=", ".join(filter(None, (device.title, product))),
    )


def _number(text: str | None) -> float:
    with contextlib.suppress(ValueError, TypeError):
        return float(text or 0)
    return 0.0
