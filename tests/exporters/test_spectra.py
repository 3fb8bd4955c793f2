"""Spectra of TensorFlow's models, whose complex numbers ONNX does not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxport.core.errors import CannotConvertError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import Host
from onnxport.exporters.sources import Source

RANDOM = np.random.default_rng(0)
FRAMES = RANDOM.standard_normal((1, 5, 24)).astype(np.float32)
PARTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "real": ("real", np.real),
    "imaginary": ("imag", np.imag),
    "cast": ("cast", np.real),
    "magnitude": ("abs", np.abs),
}


def save(folder: Path, form: str, read: Callable[[Any], Any]) -> Path:
    """Write what `read` makes of the spectrum of [1, 5, 24] frames, as a SavedModel or a .tflite."""
    import tensorflow as tf

    module = tf.Module()
    signature = tf.TensorSpec(FRAMES.shape, tf.float32, name="frames")
    module.read = tf.function(lambda frames: {"y": read(tf.signal.rfft(frames))}, input_signature=[signature])
    if form == "saved":
        tf.saved_model.save(module, str(folder / form), signatures=module.read)
        return folder / form
    function = module.read.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    (folder / "model.tflite").write_bytes(converter.convert())
    return folder / "model.tflite"


def export(source: Path, output: Path) -> Any:
    host, params = Host(), ExportParams()
    host.open(Source.of(str(source), None), params)
    host.export(output, None)
    return onnxruntime.InferenceSession(output)


@pytest.mark.parametrize("form", ["saved", "tflite"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_spectrum_is_exported(tmp_path: Path, form: str, part: str) -> None:
    import tensorflow as tf

    reads = {"real": tf.math.real, "imag": tf.math.imag, "abs": tf.abs}
    name, expected = PARTS[part]
    read = reads.get(name, lambda spectrum: tf.cast(spectrum, tf.float32))
    session = export(save(tmp_path, form, read), tmp_path / "model.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: FRAMES})
    np.testing.assert_allclose(y, expected(np.fft.rfft(FRAMES)), rtol=1e-4, atol=1e-5)


def test_two_readers_of_one_spectrum_read_their_own_parts(tmp_path: Path) -> None:
    import tensorflow as tf

    source = save(tmp_path, "tflite", lambda spectrum: tf.math.real(spectrum) - 2 * tf.math.imag(spectrum))
    session = export(source, tmp_path / "model.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: FRAMES})
    spectrum = np.fft.rfft(FRAMES)
    np.testing.assert_allclose(y, spectrum.real - 2 * spectrum.imag, rtol=1e-4, atol=1e-4)


def test_a_product_of_complex_numbers_is_refused_by_name(tmp_path: Path) -> None:
    import tensorflow as tf

    source = save(tmp_path, "saved", lambda spectrum: tf.math.real(spectrum * spectrum))
    with pytest.raises(CannotConvertError, match="its complex numbers are read by Mul"):
        export(source, tmp_path / "model.onnx")
