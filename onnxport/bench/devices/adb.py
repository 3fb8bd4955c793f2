"""Android devices and emulators, by the serial number that `adb devices` shows."""

from __future__ import annotations

from pathlib import Path

from onnxport.bench.devices.connection import Answer, Device


class Adb(Device):
    scheme = "adb"
    program = "adb"
    install = "install Android's platform-tools, and put adb on the PATH"
    hint = "`adb devices` lists the serial numbers of devices that are ready"
    place = "/data/local/tmp"  # the only folder where its shell may write and execute

    def shell(self, command: str) -> list[str]:
        return ["adb", "-s", self.name, "shell", command]

    def send(self, file: Path, place: str, seconds: float) -> Answer:
        return self.call(["adb", "-s", self.name, "push", str(file), place], seconds)
