"""Energy of the packages, also when a counter wraps; none where the counters cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.bench.counters import EnergyCounters


def zone(root: Path, place: str, name: str, used: int, most: int = 1000) -> Path:
    folder = root / place
    folder.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", used), ("max_energy_range_uj", most)):
        (folder / file).write_text(f"{value}\n")
    return folder


def test_only_packages_count_and_each_once(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 400)
    zone(tmp_path, "intel-rapl:0:0", "core", 300)
    zone(tmp_path, "intel-rapl:1", "psys", 700)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 400)
    assert EnergyCounters(str(tmp_path)).read() == (400,)


def test_a_counter_that_began_anew_is_counted_on(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 900, most=1000)
    counters = EnergyCounters(str(tmp_path))
    before = counters.read()
    (package / "energy_uj").write_text("100\n")
    assert counters.joules(before, counters.read()) == pytest.approx(200e-6)


def test_a_machine_without_counters_has_no_joules(tmp_path: Path) -> None:
    counters = EnergyCounters(str(tmp_path / "none"))
    assert counters.joules(counters.read(), counters.read()) is None
