"""A package that is not whole, or none, is refused in a sentence, whatever of it is broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxport.core.errors import InputError, OnnxportError
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.base import RunError
from onnxport.runtimes.mlprogram import MilRuntime
from tests.runtimes.mlprogram.programs import builder, write

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights in the file, numbers and strings in the program, and a block."""
    mb = builder()
    weight = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(64, 4)

    def build(x: object) -> list[object]:
        product = mb.linear(x=x, weight=weight)
        wide = mb.cast(x=product, dtype="fp16")
        high = mb.greater(x=mb.reduce_max(x=product), y=0.0)
        chosen = mb.cond(pred=high, _true_fn=lambda: mb.mul(x=wide, y=np.float16(2)), _false_fn=lambda: wide)
        return [mb.cast(x=chosen, dtype="fp32")]

    return write(tmp_path_factory.mktemp("whole"), {"x": X}, build).path


@pytest.fixture
def package(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy.mlpackage"))


def model(package: Path) -> Path:
    (found,) = package.glob("Data/**/model.mlmodel")
    return found


def weights(package: Path) -> Path:
    (found,) = package.glob("Data/**/weight.bin")
    return found


def manifest(package: Path) -> Path:
    return package / "Manifest.json"


def test_whole_it_runs(package: Path) -> None:
    with MilRuntime(package) as runtime:
        (found,) = runtime.run({"x": X}).values()
    wanted = X @ np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(64, 4).T
    np.testing.assert_allclose(found, wanted.astype(np.float16) * 2, rtol=2e-3)


def _cut(file: Callable[[Path], Path], size: int) -> Callable[[Path], None]:
    def damage(package: Path) -> None:
        content = file(package).read_bytes()
        file(package).write_bytes(content[: size if size >= 0 else len(content) + size])

    return damage


def _text(content: str) -> Callable[[Path], None]:
    def damage(package: Path) -> None:
        manifest(package).write_text(content)

    return damage


def _neural_network(package: Path) -> None:
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model(specificationVersion=5)
    spec.neuralNetwork.SetInParent()
    model(package).write_bytes(spec.SerializeToString())


def _garbage(package: Path) -> None:
    model(package).write_bytes(b"garbage" * 99)


def _moved_weights(package: Path) -> None:
    content = weights(package).read_bytes()
    weights(package).write_bytes(content[:64] + bytes(64) + content[64:])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no folder": (lambda package: shutil.rmtree(package), "it has no Manifest.json"),
    "no manifest": (lambda package: manifest(package).unlink(), "it has no Manifest.json"),
    "garbage for a manifest": (_text("\x00not json"), "Manifest.json does not say where the model is"),
    "a manifest that is a list": (_text("[1, 2]"), "Manifest.json does not say where the model is"),
    "a manifest without a root": (
        _text(json.dumps({"itemInfoEntries": {}})),
        "Manifest.json does not say where the model is",
    ),
    "a manifest nested too deep": (_text("[" * 100_000), "Manifest.json does not say where the model is"),
    "no model": (lambda package: model(package).unlink(), "it has no model.mlmodel"),
    "an empty model": (_cut(model, 0), "model.mlmodel holds no model"),
    "half a model": (_cut(model, 600), "model.mlmodel is truncated"),
    "a model without its end": (_cut(model, -1), "model.mlmodel is truncated"),
    "garbage for a model": (
        _garbage,
        "model.mlmodel is truncated or no model",
    ),
    "a neural network": (_neural_network, "holds a neuralNetwork, not an ML program"),
    "no weights": (
        lambda package: weights(package).unlink(),
        "weight.bin, which holds its weights, is missing",
    ),
    "empty weights": (_cut(weights, 0), "weight.bin is truncated: it ends before the weights at 64"),
    "weights without their end": (
        _cut(weights, -8),
        "weight.bin is truncated: it ends within the weights at",
    ),
    "other weights": (_moved_weights, "weight.bin holds no weights at 64"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_said_in_a_sentence(name: str, package: Path) -> None:
    damage, words = DAMAGES[name]
    damage(package)
    with pytest.raises(InputError) as caught:
        MilRuntime(package)
    assert words in str(caught.value)
    assert package.name in str(caught.value)


def test_a_file_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "a.mlpackage").write_text("x")
    with pytest.raises(InputError, match="Not a directory"):
        read_package(tmp_path / "a.mlpackage")


def test_random_damage_ends_in_an_error_of_ours(whole: Path, package: Path) -> None:
    """Bytes flipped anywhere in the model: it is refused, fails to run, or gives an answer, but nothing else."""
    random = np.random.default_rng(7)
    content = np.frombuffer(model(whole).read_bytes(), np.uint8)
    for _ in range(400):
        damaged = content.copy()
        places = random.integers(0, len(damaged), int(random.integers(1, 4)))
        damaged[places] = random.integers(0, 256, len(places))
        model(package).write_bytes(damaged.tobytes())
        try:
            with MilRuntime(package) as runtime:
                runtime.run(
                    {port.name: np.resize(X, [d or 1 for d in port.shape]) for port in runtime.inputs}
                )
        except (OnnxportError, RunError):
            pass
