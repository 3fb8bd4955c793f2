"""Audio files (`.wav`) as inputs of a model, cut into windows of the model's length and resampled if asked."""

from __future__ import annotations

import re
import warnings
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.core.shell_words import quote
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples.folders import AUDIO

LARGEST_RATE = 768_000  # Hz
_MOST_CHANNELS = 8  # 7.1; a longer axis holds time or features

_RATE = re.compile(r"(^|[^a-z])(sr|fs|(sampl(e|ing)_?)?rate)$", re.IGNORECASE)
_LENGTH = re.compile(r"(len|length)s?$|(^|_)(n|num)_samples$", re.IGNORECASE)

# Format tags of WAVE: IEEE floats, and "extensible", in which most files of 24 bits or more than two channels are
# written. `wave` refuses both (extensible before Python 3.12); SciPy reads them.
_BY_SCIPY = (3, 0xFFFE)
_UNKNOWN_FORMAT = re.compile(r"unknown (?:extended )?format: b?'?(\d+)?")


@dataclass(frozen=True)
class Waveform:
    """The audio inputs of a model.

    Attributes:
        spec: the waveform: [T], [N, T], [N, C, T] or [N, T, C]; floats are fed -1..1, int16 as in the file.
        channels: 1 for a mix of the file's channels, else as many as the file must have.
        channels_last: whether the shape is [N, T, C].
        batch: windows per set of inputs: N where it is fixed, else 1.
        window: T where it is fixed, in samples; None feeds a whole file.
        rates: integer inputs that get the rate in Hz.
        lengths: integer inputs that get the number of samples of each window.
    """

    spec: TensorSpec
    channels: int
    channels_last: bool
    batch: int
    window: int | None
    rates: tuple[TensorSpec, ...]
    lengths: tuple[TensorSpec, ...]


def find_waveform(inputs: Sequence[TensorSpec], example: Path) -> Waveform:
    """Return the audio inputs among a model's required inputs; errors name the file `example`.

    Raises:
        InputError: no input is a waveform, or an input cannot be derived from an audio file.
    """
    rates = tuple(spec for spec in inputs if _is_integer(spec) and _RATE.search(spec.name))
    lengths = tuple(
        spec for spec in inputs if _is_integer(spec) and spec not in rates and _LENGTH.search(spec.name)
    )
    others = [spec for spec in inputs if spec not in rates and spec not in lengths]
    keys = ", ".join(repr(spec.name) for spec in inputs)
    if len(others) != 1:
        raise InputError(
            f"{example} is one waveform",
            why=f"the model takes {', '.join(map(str, others or inputs))}",
            fix=f"use .npz files with the keys {keys}",
        )
    (spec,) = others
    channel = _channel_axis(spec.shape)
    is_waveform = len(spec.shape) in (1, 2) or (len(spec.shape) == 3 and channel is not None)
    if not is_waveform or spec.dtype not in ("float16", "float32", "float64", "int16"):
        raise InputError(
            f"{example} is audio and fits no input",
            why=f"the model takes {spec}, which is no waveform (float or int16; [T], [N, T], [N, 1, T] or [N, T, 1])",
            fix=f"compute what it takes and save .npz files with the key {keys}",
        )
    channels = spec.shape[channel] if channel is not None else 1
    time = spec.shape[1] if channel == 2 else spec.shape[-1]
    batch = spec.shape[0] if len(spec.shape) > 1 else 1
    assert isinstance(channels, int)
    if isinstance(batch, int) and batch > 1 and not isinstance(time, int):
        raise InputError(
            f"{example} is one waveform",
            why=f"the model takes {spec}, {batch} of one length in one batch",
            fix=f"use .npz files with the key {keys}",
        )
    return Waveform(
        spec,
        channels,
        channel == 2,
        batch if isinstance(batch, int) else 1,
        time if isinstance(time, int) else None,
        rates,
        lengths,
    )


def _is_integer(spec: TensorSpec) -> bool:
    """Return whether an input holds one integer, or one per row of the batch."""
    return spec.dtype in ("int32", "int64") and len(spec.shape) <= 1


def _channel_axis(shape: Sequence[Dim]) -> int | None:
    """Return 1 or 2, the axis of few channels beside a longer or open axis of time; None where there is none."""
    if len(shape) != 3:
        return None
    for axis, time in ((1, shape[2]), (2, shape[1])):
        size = shape[axis]
        is_short = isinstance(size, int) and 1 <= size <= _MOST_CHANNELS
        if is_short and not (isinstance(time, int) and time <= _MOST_CHANNELS):
            return axis
    return None


@dataclass(frozen=True)
class Clip:
    """An audio file: its format, without its samples.

    Attributes:
        rate: in Hz.
        frames: number of samples per channel.
        by_scipy: whether `wave` cannot read it.
    """

    path: Path
    rate: int
    channels: int
    frames: int
    by_scipy: bool = False

    def length_at(self, rate: int | None) -> int:
        """Return the number of samples per channel at `rate`, None for the file's own."""
        return -(-self.frames * rate // self.rate) if rate else self.frames


@dataclass(frozen=True)
class Window:
    """A reader of one set of inputs of a clip: `waveform.batch` windows from sample `begin` on.

    Attributes:
        rate: the rate to resample to in Hz; None for the file's own.
        size: samples per window.
    """

    clip: Clip
    waveform: Waveform
    rate: int | None
    begin: int
    size: int

    def __call__(self) -> Mapping[str, Array]:
        """Return the waveform, and rate and lengths where the model takes them."""
        model, spec = self.waveform, self.waveform.spec
        samples = self._samples(self.begin, self.size * model.batch)
        values = _cast(samples, spec.dtype).reshape(model.batch, self.size, model.channels)
        if not model.channels_last:
            values = values.transpose(0, 2, 1)
        if len(spec.shape) < 3:
            values = values[:, 0]
        feeds = {spec.name: np.ascontiguousarray(values[0] if len(spec.shape) == 1 else values)}
        feeds |= {each.name: _fill(each, self.rate or self.clip.rate) for each in model.rates}
        return feeds | {each.name: _fill(each, self.size, model.batch) for each in model.lengths}

    def _samples(self, begin: int, count: int) -> Array:
        """Return float64[count, channels] at the wanted rate."""
        mono = self.waveform.channels == 1
        if self.rate is None or self.rate == self.clip.rate:
            return _decode(self.clip, begin, count, mono)
        changed = self.clip.path.stat().st_mtime_ns
        return _resample(self.clip, self.rate, mono, changed)[begin : begin + count]


def find_windows(path: Path, waveform: Waveform, rate: int | None) -> tuple[Window, ...]:
    """Return the sets of inputs in a file, without what remains at its end.

    Args:
        rate: the rate to resample to in Hz; None for the file's own.

    Raises:
        InputError: the file is unreadable, compressed, empty or too short, or its channels do not fit.
        MissingDependencyError: SciPy, which resamples and reads floats, is not installed.
    """
    clip = open_clip(path)
    if waveform.channels not in (1, clip.channels):
        raise InputError(
            f"{path} has {clip.channels} channel{'s' * (clip.channels > 1)}",
            why=f"the model takes {waveform.spec}, {waveform.channels} channels",
            fix=f"give files of {waveform.channels} channels",
        )
    if rate not in (None, clip.rate):
        _import_scipy(path, f"resampled to {rate} Hz")
    length = clip.length_at(rate)
    size = waveform.window or length
    step = size * waveform.batch
    if length < step:
        windows = f", {waveform.batch} windows" if waveform.batch > 1 else ""
        raise InputError(
            f"{path} has {length} samples at {rate or clip.rate} Hz",
            why=f"the model takes {waveform.spec}{windows}",
            fix=f"give files of at least {step} samples",
        )
    return tuple(Window(clip, waveform, rate, begin, size) for begin in range(0, length - step + 1, step))


def describe_audio(windows: Sequence[Window]) -> Iterator[str]:
    """Yield notes for a report: the rate of the files, and what was not fed."""
    clips = {window.clip: window for window in windows}
    own = sorted({clip.rate for clip, window in clips.items() if window.rate is None})
    if own:
        rates = ", ".join(map(str, own))
        yield f"audio was read at the files' rate, {rates} Hz; --preprocess rate=HZ resamples it"
    for rate in sorted({window.rate for window in windows if window.rate is not None}):
        others = sorted({clip.rate for clip in clips if clip.rate != rate})
        if others:
            yield f"audio was resampled from {', '.join(map(str, others))} to {rate} Hz"
    rests = {clip: rest for clip, window in clips.items() if (rest := _rest(window))}
    if rests:
        clip, rest = next(iter(rests.items()))
        window = clips[clip]
        more = f", and of {len(rests) - 1} more files" if len(rests) > 1 else ""
        yield (
            f"the last {rest} of {clip.length_at(window.rate)} samples of {clip.path.name} fill no set of "
            f"{window.size * window.waveform.batch} and were not read{more}"
        )


def _rest(window: Window) -> int:
    return window.clip.length_at(window.rate) % (window.size * window.waveform.batch)


def open_clip(path: Path) -> Clip:
    """Read the header of a `.wav` file.

    Raises:
        InputError: it is unreadable, compressed or empty.
        MissingDependencyError: only SciPy can read it, and SciPy is not installed.
    """
    empty = InputError(f"{path} has no samples", fix="remove it, or record it again")
    try:
        size = path.stat().st_size
        if size == 0:
            raise empty
        with wave.open(str(path)) as file:
            clip = Clip(path, file.getframerate(), file.getnchannels(), file.getnframes())
            width = file.getsampwidth()
    except wave.Error as error:
        clip, width = _open_unusual(path, error)
    except EOFError as error:
        raise _damaged(path, "it ends within its header") from error
    except (OSError, RuntimeError) as error:
        raise _damaged(path, " ".join(str(error).split())[:200] or "its header is wrong") from error
    if width not in (1, 2, 3, 4):
        raise _damaged(path, f"it has {8 * width} bits per sample")
    if not 0 < clip.rate <= LARGEST_RATE:
        raise _damaged(path, f"its header says {clip.rate} Hz")
    if clip.frames == 0:
        raise empty
    if not clip.by_scipy and clip.frames * clip.channels * width > size:
        raise _damaged(path, f"its header says {clip.frames} samples, more than its {size} bytes hold")
    return clip


def _open_unusual(path: Path, error: wave.Error) -> tuple[Clip, int]:
    """Return the clip and the bytes per sample of a file that `wave` refuses."""
    matched = _UNKNOWN_FORMAT.match(str(error))
    if matched is None:
        raise _damaged(path, str(error)) from error
    if matched[1] is not None and int(matched[1]) not in _BY_SCIPY:
        raise InputError(
            f"{path} is compressed",
            why=f"its format is {int(matched[1])}, and only PCM and floats are read",
            fix=_convert(path),
        ) from error
    rate, samples = _read_by_scipy(path, path.stat().st_mtime_ns)
    return Clip(path, rate, samples.shape[1], len(samples), by_scipy=True), 4


def _decode(clip: Clip, begin: int, count: int, mono: bool) -> Array:
    """Return `count` samples from `begin` on: float64[count, channels] in -1..1, one channel for `mono`."""
    if clip.by_scipy:
        _, raw = _read_by_scipy(clip.path, clip.path.stat().st_mtime_ns)
        samples = _normalize(raw[begin : begin + count])
    else:
        with wave.open(str(clip.path)) as file:
            file.setpos(begin)
            content, width = file.readframes(count), file.getsampwidth()
        if len(content) < count * clip.channels * width:
            raise _damaged(clip.path, "it ends before the samples that its header says")
        samples = _normalize(_parse_pcm(content, width).reshape(count, clip.channels))
    return np.asarray(samples.mean(axis=1, keepdims=True)) if mono else samples


def _parse_pcm(content: bytes, width: int) -> Array:
    """Return uint8, int16 or int32 samples; 24 bits become the upper bytes of 32."""
    if width == 3:
        padded = np.zeros((len(content) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return padded.reshape(-1).view("<i4")
    return np.frombuffer(content, {1: "u1", 2: "<i2", 4: "<i4"}[width])


def _normalize(samples: Array) -> Array:
    """Return float64 in -1..1: integers divided by 2^(bits - 1), of which 8-bit ones have their zero at 128."""
    values = samples.astype(np.float64)
    if samples.dtype.kind == "f":
        return values
    return np.asarray(
        (values - 128 if samples.dtype == np.uint8 else values) / 2.0 ** (8 * samples.itemsize - 1)
    )


def _cast(samples: Array, dtype: str) -> Array:
    """Return float64 samples in -1..1 in the model's type; int16 has the range of a file of 16 bits."""
    if dtype == "int16":
        return np.clip(np.round(samples * 2.0**15), -(2**15), 2**15 - 1).astype(np.int16)
    return samples.astype(dtype)


def _fill(spec: TensorSpec, value: int, batch: int = 1) -> Array:
    size = spec.shape[0] if spec.shape and isinstance(spec.shape[0], int) else batch
    return np.full((size,) if spec.shape else (), value, spec.dtype)


@lru_cache(maxsize=1)
def _resample(clip: Clip, rate: int, mono: bool, changed: int) -> Array:
    """Return the whole clip at another rate; the last one is cached, because its windows are read one by one."""
    scipy = _import_scipy(clip.path, f"resampled to {rate} Hz")
    samples = _decode(clip, 0, clip.frames, mono)
    return np.asarray(scipy.signal.resample_poly(samples, rate, clip.rate, axis=0))


@lru_cache(maxsize=1)
def _read_by_scipy(path: Path, changed: int) -> tuple[int, Array]:
    """Return the rate and the samples [frames, channels] of a file; the last one is cached."""
    wavfile = _import_scipy(path, "read").io.wavfile
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that it skips
            warnings.filterwarnings("error", "Reached EOF")
            rate, samples = wavfile.read(path)
    except Exception as error:  # damaged headers make it raise anything
        raise _damaged(path, " ".join(str(error).split())[:200] or type(error).__name__) from error
    if samples.dtype.kind == "f" and not np.isfinite(samples).all():
        raise InputError(f"{path} has samples that are not finite", fix=_convert(path))
    return int(rate), samples if samples.ndim > 1 else samples[:, None]


def _import_scipy(path: Path, verb: str) -> Any:
    try:
        import scipy.io.wavfile
        import scipy.signal
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} cannot be {verb}", why="SciPy is not installed", fix="pip install 'onnxport[audio]'"
        ) from error
    return scipy


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be read", why=why, fix=_convert(path))


def _convert(path: Path) -> str:
    target = path.with_name(f"{path.stem}-pcm{AUDIO}")
    return f"rewrite it: ffmpeg -i {quote(path)} -c:a pcm_s16le {quote(target)}"
