"""Image files as inputs of a model, read by Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxport.core import limits
from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, MissingDependencyError, UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples.preprocessing import Preprocessing

if TYPE_CHECKING:
    from PIL.Image import Image


# Color -> Pillow's mode and number of channels; bgr is reversed afterwards.
_MODES = {"gray": ("L", 1), "rgb": ("RGB", 3), "bgr": ("RGB", 3), "rgba": ("RGBA", 4)}
_COLORS = {1: "gray", 3: "rgb", 4: "rgba"}
# Modes of more than 8 bits, which Pillow would clip to 255 in RGB.
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L", "I;16N"})


_FRAME_BYTES = 8  # that a frame of an animation takes at least

# Suffixes of files that may hold an animation. An animated .png is read as its first frame, because every .png of a
# large folder would have to be opened.
_ANIMATED = frozenset({".gif", ".webp", ".apng"})


@dataclass(frozen=True)
class Picture:
    """An image file, or one frame of an animation.

    Attributes:
        number: of the frame, from 0; None for a file of one image.
    """

    path: Path
    number: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.number is None else f"{self.path}[{self.number}]"

    @property
    def name(self) -> str:
        """The file's name, with the number of the frame: "walk.gif[3]"."""
        return self.path.name if self.number is None else f"{self.path.name}[{self.number}]"


def find_pictures(path: Path) -> tuple[Picture, ...]:
    """Return the frames of an animated .gif, .webp or .apng file; any other file is one picture.

    Raises:
        InputError: an animation is damaged, or has no frames.
        MissingDependencyError: it may be an animation, and Pillow is not installed.
    """
    if path.suffix.lower() not in _ANIMATED or _is_still_webp(path):
        return (Picture(path),)
    with _open_image(path) as image:
        count = getattr(image, "n_frames", 1)
        # An APNG may have an image for programs that cannot show animations; it comes first.
        first = 1 if getattr(image, "default_image", False) and count > 1 else 0
    if count == 1:
        return (Picture(path),)
    if count > path.stat().st_size // _FRAME_BYTES:
        why = f"its header says {count} frames, more than its bytes hold"
        raise InputError(f"{path} cannot be read", why=why)
    return tuple(Picture(path, number) for number in range(first, count))


def _is_still_webp(path: Path) -> bool:
    """Return whether a file's header says that it is a WebP image without animation."""
    try:
        with path.open("rb") as file:
            head = file.read(21)
    except OSError:
        return False  # Pillow names the cause
    is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) == 21
    # https://developers.google.com/speed/webp/docs/riff_container: bit 1 of the flags in VP8X is "animation".
    return is_webp and not (head[12:16] == b"VP8X" and head[20] & 2)


@dataclass(frozen=True)
class Frame:
    """The image format of a model's input.

    Attributes:
        spec: the input: [N, C, H, W] or [N, H, W, C], or either without N.
        batch: images per set of inputs: N where it is fixed, else 1.
        channels: 1, 3 or 4.
        size: height and width, as the model declares them.
    """

    spec: TensorSpec
    channels_last: bool
    batch: int
    channels: int
    size: tuple[Dim, Dim]


def find_frame(inputs: Sequence[TensorSpec], settings: Preprocessing, example: Path) -> Frame:
    """Return the frame of a model's only input; errors name the image `example`.

    Raises:
        InputError: the model takes several inputs, or one that has no image's shape.
        UsageError: settings do not fit the input.
    """
    if len(inputs) != 1:
        raise InputError(
            f"{example} is one image",
            why=f"the model takes {[spec.name for spec in inputs]}",
            fix="use .npz files with these keys",
        )
    (spec,) = inputs
    axis = _channel_axis(spec.shape, settings)
    if (
        axis is None
        and settings.layout is not None
        and _channel_axis(spec.shape, Preprocessing()) is not None
    ):
        raise UsageError(
            f"--preprocess layout={settings.layout} does not fit the model",
            why=f"it takes {spec}",
            fix="leave layout out: it is taken from the model",
        )
    if axis is None:
        raise InputError(
            f"{example} is an image, and no input takes images",
            why=f"the model takes {spec}, which is neither NCHW nor NHWC with 1, 3 or 4 channels",
            fix="use .npz files, or give --preprocess layout=nchw and color=rgb if the channels are open",
        )
    channels = spec.shape[axis]
    if not isinstance(channels, int):
        channels = _MODES[settings.color or "rgb"][1]
    if settings.color and _MODES[settings.color][1] != channels:
        raise UsageError(f"color={settings.color} does not fit {spec}", why=f"it has {channels} channels")
    for name, values in (("mean", settings.mean), ("std", settings.std)):
        if len(values) not in (1, channels):
            raise UsageError(f"{name} has {len(values)} values", why=f"{spec} has {channels} channels")
    if settings.touches_values and not spec.dtype.startswith("float"):
        raise UsageError(f"scale and std do not fit {spec}", why=f"an input of {spec.dtype} takes bytes")
    height, width = spec.shape[-2:] if axis == -3 else spec.shape[-3:-1]
    batch = spec.shape[0] if len(spec.shape) == 4 and isinstance(spec.shape[0], int) else 1
    return Frame(spec, axis == -1, batch, channels, (height, width))


def _channel_axis(shape: Sequence[Dim], settings: Preprocessing) -> int | None:
    """Return -3 or -1, by the settings, else by the axis of 1, 3 or 4 channels; None where there is none."""
    if len(shape) not in (3, 4):
        return None
    axes = {"nchw": (-3,), "nhwc": (-1,), None: (-3, -1)}[settings.layout]
    if settings.layout and settings.color and not isinstance(shape[axes[0]], int):
        return axes[0]
    return next((axis for axis in axes if shape[axis] in _COLORS), None)


def read_images(pictures: Sequence[Picture], frame: Frame, settings: Preprocessing) -> Array:
    """Return one set of inputs of the frame's shape and dtype.

    Raises:
        InputError: an image is damaged, has more than 8 bits per channel, or another size than the model takes.
        MissingDependencyError: Pillow is not installed.
    """
    pixels = [_pixels(picture, frame, settings) for picture in pictures]
    for picture, image in zip(pictures, pixels, strict=True):
        if image.shape != pixels[0].shape:
            sizes = " and ".join("x".join(map(str, each.shape[:2])) for each in (pixels[0], image))
            raise InputError(
                f"{pictures[0]} and {picture.name} belong to one batch and differ in size",
                why=f"they are {sizes}",
                fix="give --preprocess resize=HEIGHTxWIDTH",
            )
    values = np.stack([_normalize(image, settings) for image in pixels])
    if not frame.channels_last:
        values = values.transpose(0, 3, 1, 2)
    if len(frame.spec.shape) == 3:
        values = values[0]
    return np.ascontiguousarray(_cast(values, frame.spec, pictures[0]))


def _pixels(picture: Picture, frame: Frame, settings: Preprocessing) -> Array:
    """Read, resize and crop an image: uint8[height, width, channels]."""
    color = settings.color or _COLORS[frame.channels]
    image = _crop(_resize(_open(picture, _MODES[color][0]), settings), settings, picture)
    for wanted, found in zip(frame.size, (image.height, image.width), strict=True):
        if isinstance(wanted, int) and wanted != found:
            raise InputError(
                f"{picture} is {image.height}x{image.width} (height x width)",
                why=f"the model takes {frame.spec}",
                fix=f"give --preprocess resize={'x'.join(str(d) if isinstance(d, int) else 'N' for d in frame.size)}",
            )
    pixels = np.asarray(image).reshape(image.height, image.width, frame.channels)
    return pixels[..., ::-1] if color == "bgr" else pixels


def _open(picture: Picture, mode: str) -> Image:
    """Return an image, rotated by its EXIF data; of an animation, the frame."""
    with _open_image(picture.path) as image:
        from PIL import ImageOps

        if picture.number:
            image.seek(picture.number)
        if image.mode in _DEEP:
            raise InputError(
                f"{picture} has more than 8 bits per channel", fix="save it with 8, or its values as .npy"
            )
        return ImageOps.exif_transpose(image).convert(mode)


@contextmanager
def _open_image(path: Path) -> Iterator[Image]:
    """Open an image file for a with block; errors of Pillow, in the block too, become InputError."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} cannot be read", why="Pillow is not installed", fix="pip install 'onnxport[images]'"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if limits.is_given("pixels"):
                Image.MAX_IMAGE_PIXELS = limits.limit("pixels")
            with Image.open(path) as image:
                yield image
    except InputError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path} is too large",
            why=f"it has more than {(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.0f} million pixels",
            fix="shrink it, or cut it into several; " + limits.advice("pixels"),
        ) from error
    except Exception as error:  # Pillow's decoders raise anything for damaged files
        why = " ".join(str(error).replace(repr(str(path)), "it").split())[:200]
        raise InputError(f"{path} cannot be read", why=why or type(error).__name__) from error


def _resize(image: Image, settings: Preprocessing) -> Image:
    from PIL.Image import Resampling

    if settings.resize is None:
        return image
    if len(settings.resize) == 2:
        height, width = settings.resize
    else:
        (short,) = settings.resize
        # torchvision.transforms.functional._compute_resized_output_size
        longer = int(short * max(image.size) / min(image.size))
        height, width = (longer, short) if image.width <= image.height else (short, longer)
    if (width, height) == image.size:
        return image
    return image.resize((width, height), Resampling[settings.interpolation.upper()])


def _crop(image: Image, settings: Preprocessing, picture: Picture) -> Image:
    if settings.crop is None:
        return image
    height, width = settings.crop if len(settings.crop) == 2 else settings.crop * 2
    if height > image.height or width > image.width:
        raise InputError(
            f"{picture} is smaller than crop={height}x{width}",
            why=f"it is {image.height}x{image.width} (height x width)",
            fix="give --preprocess resize as well" if settings.resize is None else "give a larger resize",
        )
    # torchvision.transforms.functional.center_crop
    top, left = round((image.height - height) / 2.0), round((image.width - width) / 2.0)
    return image.crop((left, top, left + width, top + height))


def _normalize(pixels: Array, settings: Preprocessing) -> Array:
    """Return (pixels * scale - mean) / std: float64[height, width, channels]."""
    scaled = pixels.astype(np.float64) * settings.scale
    return np.asarray((scaled - np.asarray(settings.mean)) / np.asarray(settings.std))


def _cast(values: Array, spec: TensorSpec, picture: Picture) -> Array:
    if spec.dtype.startswith("float"):
        return values.astype(spec.dtype)
    if spec.dtype not in ("uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64"):
        raise InputError(f"{picture} is an image", why=f"the model takes {spec}")
    limits = np.iinfo(spec.dtype)
    rounded = np.round(values)
    if rounded.min(initial=0) < limits.min or rounded.max(initial=0) > limits.max:
        raise InputError(
            f"{picture} does not fit {spec}",
            why=f"its values reach from {rounded.min():.0f} to {rounded.max():.0f}",
            fix="give --preprocess mean=128" if spec.dtype == "int8" else "give other settings",
        )
    return rounded.astype(spec.dtype)
