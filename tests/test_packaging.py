"""What we ship: the wheel holds the package and nothing else, the sdist all that it takes to test it."""

import ast
import email
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import onnxport

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
IMPORT_NAMES = {
    "_tools": "MNN",
    "distributed": "dask",
    "google": "protobuf",
    "h5py": "tensorflow",
    "joblib": "scikit-learn",
    "mlflow": "mlflow-skinny",
    "keras": "tensorflow",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
# No extra brings them: Keras 2 is for models that were made with it, PaddlePaddle has an environment of its own, and
# threadpoolctl comes with scikit-learn.
UNREQUIRED = {"paddle", "tf-keras", "threadpoolctl"}
# What a user needs for part of what the package does; the others are for those who work on it.
OPTIONAL = (
    *("distributed", "images", "audio", "torch", "tensorflow", "sklearn", "boosting"),
    *("remote", "s3", "gs", "hf", "oci", "view", "mlflow", "wandb"),
    *("tract", "openvino", "ncnn", "mnn", "rten", "webgpu"),
)
# Never imported by us: run as programs (the package of pnnx imports PyTorch), loaded by
# fsspec for its protocols, or served as pages.
PROGRAMS = {"pnnx", "rten-convert", "netron", "s3fs", "gcsfs", "huggingface-hub"}
# The rooms that the process of one framework, engine or scheme alone enters.
INNERMOST = (
    "onnxport/formats/oci.py",
    "onnxport/exporters/*/**/*.py",
    "onnxport/runtimes/engines/*.py",
    "onnxport/runtimes/ort/webgpu.py",
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> list[str]:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def wheel_metadata(dist: Path) -> Message:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: list[str]) -> None:
    info = f"onnxport-{onnxport.__version__}.dist-info/"
    manual = f"onnxport-{onnxport.__version__}.data/data/share/man/man1/onnxport.1"
    others = [name for name in wheel if not name.startswith(info)]
    assert sorted(others) == sorted([*files_below("onnxport"), "pytest_onnxport.py", manual])
    assert "onnxport/py.typed" in wheel


def test_wheel_carries_the_license(wheel: list[str], wheel_metadata: Message) -> None:
    assert wheel_metadata["License-Expression"] == "Apache-2.0"
    assert wheel_metadata["License-File"] == "LICENSE"
    assert f"onnxport-{onnxport.__version__}.dist-info/licenses/LICENSE" in wheel


def test_pytest_finds_the_plugin_of_the_wheel(dist: Path, tmp_path: Path) -> None:
    """By its entry point, unpacked where nothing of this tree is."""
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--trace-config", "-c", os.devnull]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert re.search(rf"pytest_onnxport *: {re.escape(str(tmp_path))}", done.stdout), done.stdout


def test_version_of_the_wheel_is_the_package_s_own(wheel_metadata: Message) -> None:
    assert wheel_metadata["Version"] == onnxport.__version__


def test_sdist_holds_what_make_test_needs(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("onnxport", "tests", "fixtures", "benchmarks", "examples", "docs")
    wanted = {name for folder in folders for name in files_below(folder)}
    wanted |= {".ci/run", "Makefile", "constraints.txt", "pyproject.toml"}
    wanted |= {"CHANGELOG.md", "LICENSE", "README.md", "pytest_onnxport.py"}
    assert wanted - members == set()


def test_extras_that_the_documents_name_exist() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "onnxport").rglob("*.py")]
    named = {
        extra.strip()
        for document in documents
        for extras in re.findall(r"(?:onnxport|['\" ]\.)\[([a-z, ]+)\]", document.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert named <= set(EXTRAS)


def test_two_builds_have_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """From a copy with other times and rights of its files, in another order of folders."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    for file in sorted(tree.rglob("*"), reverse=True):
        if file.is_file():
            os.utime(file, (1_000_000_000, 1_000_000_000))
            file.chmod(file.stat().st_mode & 0o700)  # whether it is a program counts, and nothing else
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "made"), str(tree)]
    built = subprocess.run(
        command, env=os.environ | {"PYTHONHASHSEED": "5", "TZ": "Asia/Tokyo"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for former in dist.iterdir():
        again = tmp_path / "made" / former.name
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (again, former)]
        assert digests[0] == digests[1], former.name


def test_what_is_shipped_with_is_pinned_by_hashes() -> None:
    """ci/requirements.txt: every dependency, in the version of constraints.txt."""
    lines = (ROOT / "ci" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    entries = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", "").splitlines()
    hashed = {}
    for entry in entries:
        text, *hashes = entry.split("--hash=")
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64} *", each) for each in hashes)
        requirement = Requirement(text)
        hashed[canonicalize_name(requirement.name)] = str(requirement.specifier)
    pins = {canonicalize_name(name): f"=={version}" for name, version in constraints().items()}
    assert {name: pins[name] for name in hashed if name in pins} == {
        name: version for name, version in hashed.items() if name in pins
    }
    needed = {canonicalize_name(Requirement(each).name) for each in PYPROJECT["project"]["dependencies"]}
    assert needed <= hashed.keys()


def constraints() -> dict[str, str]:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))


def test_constraints_pin_all_that_is_required_on_this_platform() -> None:
    pins = {canonicalize_name(name): version for name, version in constraints().items()}
    for requirement in required():
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_dependencies_are_exactly_what_the_package_imports() -> None:
    imported = {canonicalize_name(IMPORT_NAMES.get(name, name)) for name in imported_packages()}
    always = {canonicalize_name(Requirement(text).name) for text in PYPROJECT["project"]["dependencies"]}
    by_extra = {canonicalize_name(Requirement(text).name) for extra in OPTIONAL for text in EXTRAS[extra]}
    assert imported - UNREQUIRED == (always | by_extra) - PROGRAMS
    assert not always & by_extra


def test_what_an_extra_brings_is_imported_in_functions_only() -> None:
    """So that everything else works without it; but for the innermost rooms."""
    optional = {canonicalize_name(Requirement(text).name) for extra in OPTIONAL for text in EXTRAS[extra]}
    innermost = {path for pattern in INNERMOST for path in ROOT.glob(pattern)}
    for path in set((ROOT / "onnxport").rglob("*.py")) - innermost:
        top = ast.parse(path.read_text(encoding="utf-8")).body
        names = imported_by(node for node in top if isinstance(node, ast.Import | ast.ImportFrom))
        assert not optional & {canonicalize_name(IMPORT_NAMES.get(name, name)) for name in names}, path


def files_below(folder: str) -> list[str]:
    """Those of the tree: not what was compiled, nor what an example fetched or made (.gitignore)."""
    ignored = [
        line.strip("/") + "*" for line in (ROOT / ".gitignore").read_text().splitlines() if line[:1] == "/"
    ]
    found = (
        path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if not any(fnmatch(name, pattern) for pattern in ignored)]


def required() -> list[Requirement]:
    texts = [*PYPROJECT["project"]["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    requirements = [Requirement(text) for text in texts]
    return [
        requirement
        for requirement in requirements
        if requirement.name != "onnxport" and (requirement.marker is None or requirement.marker.evaluate())
    ]


def imported_packages() -> set[str]:
    """The top-level packages that our modules import anywhere, without ours and the standard library's."""
    files = (ROOT / "onnxport").rglob("*.py")
    packages = {
        name for path in files for name in imported_by(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    return packages - set(sys.stdlib_module_names) - {"onnxport"}


def imported_by(nodes: Iterable[ast.AST]) -> set[str]:
    """The top-level packages that these statements import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}
