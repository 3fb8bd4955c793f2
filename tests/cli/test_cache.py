"""`onnxport cache`, `--no-cache`, and caches that cannot be written."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.sandbox import Sandbox, unprivileged

PIPELINE = """
version: 1
model: model.onnx
validate: {samples: 1}
targets:
  server: {to: ort}
"""


@pytest.fixture
def project(sandbox: Sandbox) -> Sandbox:
    sandbox.environment.pop("ONNXPORT_CACHE", None)
    sandbox.environment["XDG_CACHE_HOME"] = str(sandbox.folder.parent / "home")
    (sandbox.folder / "pipeline.yaml").write_text(PIPELINE)
    return sandbox


def stages(project: Sandbox) -> list[str]:
    """The nodes of a run that has to pass, and what became of them."""
    outcome = project.run("run", "pipeline.yaml", "--json")
    assert outcome.code == 0, outcome.stderr
    return [node["status"] for node in outcome.document["nodes"]]


def test_cache_is_listed_pruned_and_cleared(project: Sandbox) -> None:
    assert project.run("cache", "list").stdout.startswith(
        "0 products, 0 B of at most 10.0 GB in .onnxport/stages\n"
    )
    assert not (project.folder / ".onnxport").exists()
    assert stages(project) == ["made"]
    listed = project.run("cache", "list", "--json").document
    (product,) = listed["products"]
    assert (product["node"], product["file"], product["is_damaged"]) == ("model/server", "model.ort", False)
    place = project.folder / listed["folder"] / product["key"][:2] / product["key"]
    assert product["size"] == sum(file.stat().st_size for file in place.iterdir())
    assert project.run("cache", "prune").stdout.startswith("dropped 0 products")
    calibrations = project.folder.parent / "home" / "onnxport" / "calibration"
    calibrations.mkdir(parents=True)
    (calibrations / "of-others").write_bytes(bytes(100))
    cleared = project.run("cache", "clear", "pipeline.yaml", "--json").document
    assert [each["node"] for each in cleared["dropped"]] == ["model/server"]
    assert cleared["calibrations"] == {"folder": str(calibrations), "count": 1, "size": 100}
    assert [file.name for file in (project.folder / ".onnxport").iterdir()] == [".gitignore"]
    assert project.run("cache", "clear", "--calibrations", "--json").document["calibrations"]["count"] == 0


@pytest.mark.exhaustive
def test_pruned_product_is_made_again(project: Sandbox) -> None:
    assert stages(project) == ["made"]
    assert project.run("cache", "prune", "--size", "1KB").stdout.startswith("dropped 1 product, ")
    assert stages(project) == ["made"]


def test_options_that_say_nothing_are_refused(project: Sandbox) -> None:
    refused = project.run("cache", "list", "--size", "1GB")
    assert (refused.code, refused.stderr.splitlines()[0]) == (
        2,
        "error: --size is for onnxport cache prune; see onnxport cache --help",
    )
    assert project.run("cache", "list", "nowhere.yaml").code == 4
    project.environment["ONNXPORT_CACHE_SIZE"] = "much"
    refused = project.run("run", "pipeline.yaml")
    assert refused.code == 2
    assert "$ONNXPORT_CACHE_SIZE" in refused.stderr


def test_without_a_cache_nothing_is_read_or_kept(project: Sandbox) -> None:
    kept = {name: data for name, data in project.contents().items() if ".onnxport" in name}
    outcome = project.run("run", "pipeline.yaml", "--no-cache", "--json")
    assert [node["status"] for node in outcome.document["nodes"]] == ["made"]
    assert (project.folder / "build" / "model" / "server.ort").is_file()
    assert {name: data for name, data in project.contents().items() if ".onnxport" in name} == kept
    assert not any(project.temporary.iterdir())


@pytest.fixture
def read_only(project: Sandbox) -> Iterator[Sandbox]:
    """With a cache that holds the product and that nobody may write to."""
    assert stages(project) == ["made"]
    places = [place for place in (project.folder / ".onnxport").rglob("*") if place.is_dir()]
    places.append(project.folder / ".onnxport")
    for place in places:
        place.chmod(0o555)
    yield project
    for place in places:
        place.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_read_only_cache_serves_and_refuses_what_it_would_have_to_keep(read_only: Sandbox) -> None:
    (read_only.folder / "build" / "model" / "server.ort").unlink()
    found = read_only.run("run", "pipeline.yaml", "--json", before_exec=unprivileged)
    assert found.code == 0, found.stderr
    assert [node["status"] for node in found.document["nodes"]] == ["cached"]
    (read_only.folder / "pipeline.yaml").write_text(PIPELINE.replace("ort}", "ort, level: basic}"))
    before = read_only.contents()
    refused = read_only.run("run", "pipeline.yaml", before_exec=unprivileged)
    assert refused.code == 6
    assert (
        "the cache .onnxport/stages cannot be written: Permission denied; set $ONNXPORT_CACHE to a writable folder "
        "with free space, or run with --no-cache"
    ) in refused.stderr
    assert read_only.contents() == before
    refused = read_only.run("cache", "clear", before_exec=unprivileged)
    assert refused.code == 6
    made = read_only.run("run", "pipeline.yaml", "--no-cache", before_exec=unprivileged)
    assert made.code == 0, made.stderr


def test_full_disk_leaves_no_entry_and_the_old_artefact(project: Sandbox) -> None:
    assert stages(project) == ["made"]
    before = project.contents()
    (project.folder / "pipeline.yaml").write_text(PIPELINE.replace("ort}", "ort, level: basic}"))
    failed = project.run(
        "run",
        "pipeline.yaml",
        before_exec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert failed.code == 6, failed.stderr
    (project.folder / "pipeline.yaml").write_text(PIPELINE)
    assert project.contents() == before
    assert stages(project) == ["cached"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB; skips where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.exhaustive
def test_cache_on_a_full_disk_serves_what_it_has(project: Sandbox, small_disk: Path) -> None:
    project.environment["ONNXPORT_CACHE"] = str(small_disk)
    assert stages(project) == ["made"]
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filling").write_bytes(bytes(free))
    assert stages(project) == ["cached"]
    (project.folder / "pipeline.yaml").write_text(PIPELINE.replace("ort}", "ort, level: basic}"))
    failed = project.run("run", "pipeline.yaml")
    assert failed.code == 6
    assert "free some space or give $ONNXPORT_CACHE a path on another disk" in failed.stderr
    (small_disk / "filling").unlink()
    assert stages(project) == ["made"]
