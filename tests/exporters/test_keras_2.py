"""`.h5` files that Keras 2 wrote: Keras 3 reads them as the networks that were trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.exporters.test_tensorflow import answers, exported

TOKENS = np.random.default_rng(7).integers(1, 9, (2, 6)).astype(np.float32)


def network(gate: Any) -> Any:
    """Return a tagger: recurrent layers whose gates, and an output, have the given activation."""
    import keras

    layers = keras.layers
    gru = layers.GRU(3, recurrent_activation=gate, reset_after=False, return_sequences=True)
    return keras.Sequential(
        [
            layers.Input((6,), name="embedding_input"),
            layers.Embedding(9, 4),
            layers.Bidirectional(gru),
            layers.LSTM(3, recurrent_activation=gate, return_sequences=True),
            layers.Dense(2, activation=gate),
        ]
    )


def as_keras_2(config: Any) -> Any:
    """Return a configuration as Keras 2.0 wrote it."""
    if isinstance(config, list):
        return [as_keras_2(each) for each in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        return "float32"
    gone = ("module", "registered_name", "build_config", "reset_after", "seed")
    found = {name: as_keras_2(value) for name, value in config.items() if name not in gone}
    if found.get("class_name") in ("GRU", "LSTM"):
        found["config"]["time_major"] = False
    if found.get("class_name") == "Sequential":
        _, first, *others = found["config"]["layers"]
        first["config"] |= {"batch_input_shape": [None, 6], "input_length": 6}
        found["config"] = [first, *others]
    return found


@pytest.fixture
def old_file(tmp_path: Path) -> tuple[Path, Any]:
    """A file with the hard sigmoid of Keras 2, and a network of Keras 3 with that function."""
    import h5py
    import keras

    trained = network("hard_sigmoid")
    trained.save(tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        file.attrs["model_config"] = json.dumps(as_keras_2(json.loads(file.attrs["model_config"])))
        file.attrs["keras_version"] = "2.0.8"

    @keras.saving.register_keras_serializable("tests")
    def old_gate(x: Any) -> Any:
        return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)

    same = network(old_gate)
    same.set_weights(trained.get_weights())
    return tmp_path / "old.h5", same


def test_the_gates_are_those_that_keras_2_trained(old_file: tuple[Path, Any], tmp_path: Path) -> None:
    """Keras 3's hard_sigmoid is relu6(x + 3) / 6, that of Keras 2 clip(0.2 x + 0.5): crema's chords."""
    path, same = old_file
    _, _, session = exported(str(path), tmp_path)
    (found,) = answers(session, {session.get_inputs()[0].name: TOKENS}).values()
    np.testing.assert_allclose(found, np.asarray(same(TOKENS)), atol=1e-6)
