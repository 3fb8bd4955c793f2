"""Audio as inputs: against SciPy's reader and known tones, and what is refused."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io.wavfile

from onnxport.core.errors import InputError, MissingDependencyError, UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples.duplicates import duplicates
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import SampleFile, describe_reading, find_samples

OPEN = (TensorSpec("x", "float32", ("N", "T")),)
SR = TensorSpec("sr", "int64", ())


def wav(path: Path, samples: Any, rate: int = 16000) -> Path:
    """Write [frames] or [frames, channels] with SciPy: uint8, int16, int32, float32."""
    scipy.io.wavfile.write(path, rate, np.asarray(samples))
    return path


def noise(frames: int, channels: int = 1, dtype: str = "int16") -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    shape = (frames, channels) if channels > 1 else (frames,)
    return np.random.default_rng(frames).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def raw_wav(
    path: Path, content: bytes, *, tag: int = 1, channels: int = 1, bits: int = 16, rate: int = 16000
) -> Path:
    """Write a file by the format's own description, with any format tag."""
    block = channels * bits // 8
    header = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    if tag == 0xFFFE:  # valid bits, speakers, and the GUID of PCM
        header += struct.pack("<HHIH", 22, bits, 0, 1) + bytes.fromhex("000000001000800000aa00389b71")
    chunks = b"WAVEfmt " + struct.pack("<I", len(header)) + header
    chunks += b"data" + struct.pack("<I", len(content)) + content
    path.write_bytes(b"RIFF" + struct.pack("<I", len(chunks)) + chunks)
    return path


def find(place: Path, inputs: Sequence[TensorSpec] = OPEN, **options: str) -> tuple[SampleFile, ...]:
    return find_samples(place, inputs, 10**6, settings=preprocessing(options))


def read(place: Path, *shape: Dim, dtype: str = "float32", **options: str) -> np.ndarray[Any, Any]:
    """The first set of a model with one input."""
    array = find(place, [TensorSpec("x", dtype, shape)], **options)[0].load().feeds["x"]
    assert array.dtype == dtype
    return array


@pytest.mark.parametrize(
    ("dtype", "zero", "one"), [("uint8", 128, 2**7), ("int16", 0, 2**15), ("int32", 0, 2**31)]
)
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_samples_are_those_that_scipy_reads(
    tmp_path: Path, dtype: str, zero: int, one: int, channels: int
) -> None:
    path = wav(tmp_path / "a.wav", noise(1000, channels, dtype))
    _, raw = scipy.io.wavfile.read(path)
    wanted = (raw.reshape(1000, channels).astype(np.float64) - zero) / one
    found = read(path, "N", "T")
    assert found.shape == (1, 1000)
    np.testing.assert_allclose(found[0], wanted.mean(axis=1), rtol=0, atol=2**-24)
    assert np.abs(found).max() <= 1


@pytest.mark.parametrize("tag", [1, 0xFFFE])
def test_24_bits_are_read_from_plain_and_extensible_files(tmp_path: Path, tag: int) -> None:
    values = [0, 1, -1, 2**23 - 1, -(2**23), 123456, -654321]
    content = b"".join(value.to_bytes(3, "little", signed=True) for value in values)
    path = raw_wav(tmp_path / "a.wav", content, tag=tag, bits=24)
    np.testing.assert_array_equal(read(path, "T"), np.array(values, np.float32) / 2**23)


def test_floats_are_fed_as_they_are(tmp_path: Path) -> None:
    values = np.linspace(-1.5, 1.5, 50, dtype=np.float32)
    np.testing.assert_array_equal(read(wav(tmp_path / "a.wav", values), 1, "T")[0], values)
    values[3] = np.nan
    with pytest.raises(InputError, match="samples that are not finite"):
        read(wav(tmp_path / "a.wav", values), 1, "T")


@pytest.mark.parametrize(("dtype", "shift"), [("uint8", 8), ("int16", 0), ("int32", -16)])
def test_an_int16_input_gets_16_bits(tmp_path: Path, dtype: str, shift: int) -> None:
    raw = noise(400, 1, dtype)
    path = wav(tmp_path / "a.wav", raw)
    wide = raw.astype(np.int64) - (128 if dtype == "uint8" else 0)
    wanted = np.clip(np.round(wide * 2.0**shift), -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(read(path, 1, "T", dtype="int16")[0], wanted)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (("T",), (100,)),
        ((100,), (100,)),
        (("N", "T"), (1, 100)),
        ((1, 1, "T"), (1, 1, 100)),
        (("N", "T", 1), (1, 100, 1)),
        (("N", 2, "T"), (1, 2, 100)),
        ((1, 100, 2), (1, 100, 2)),
        ((2, 1, 50), (2, 1, 50)),
        ((4, 25), (4, 25)),
    ],
)
def test_every_layout_of_a_waveform(tmp_path: Path, shape: tuple[Dim, ...], found: tuple[int, ...]) -> None:
    raw = noise(100, 2)
    array = read(wav(tmp_path / "a.wav", raw), *shape)
    assert array.shape == found
    stereo = raw.astype(np.float64) / 2**15
    if 2 in found[1:]:
        np.testing.assert_array_equal(array[0] if found[-1] == 2 else array[0].T, stereo.astype(np.float32))
    else:
        np.testing.assert_allclose(array.reshape(-1), stereo.mean(axis=1), rtol=0, atol=2**-24)


@pytest.mark.parametrize(("rate", "wanted"), [(44100, 16000), (8000, 16000), (48000, 8000), (11025, 16000)])
def test_a_tone_keeps_its_frequency_and_loudness_when_it_is_resampled(
    tmp_path: Path, rate: int, wanted: int
) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    path = wav(tmp_path / "a.wav", np.round(tone * 2**15).astype(np.int16), rate)
    found = read(path, 1, "T", rate=str(wanted))[0]
    assert len(found) == wanted, "one second"
    spectrum = np.abs(np.fft.rfft(found * np.hanning(wanted)))
    assert spectrum.argmax() == 440, "bins of 1 Hz"
    ideal = 0.5 * np.sin(2 * np.pi * 440 * np.arange(wanted) / wanted)
    middle = slice(wanted // 10, -wanted // 10)  # a filter rings at the ends
    np.testing.assert_allclose(found[middle], ideal[middle], rtol=0, atol=2e-3)


def test_what_the_lower_rate_cannot_hold_is_filtered_not_folded(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 7000 * np.arange(16000) / 16000)
    path = wav(tmp_path / "a.wav", np.round(tone * 32000).astype(np.int16))
    assert np.abs(read(path, 1, "T", rate="8000")[0, 100:-100]).max() < 0.01


def test_a_fixed_length_cuts_windows_and_the_notes_name_the_rest(tmp_path: Path) -> None:
    raw = noise(1000)
    wav(tmp_path / "a.wav", raw)
    wav(tmp_path / "b10.wav", noise(576))
    found = find(tmp_path, [TensorSpec("x", "float32", (1, 300))])
    assert [file.label for file in found] == ["a.wav[0]", "a.wav[300]", "a.wav[600]", "b10.wav"]
    for number, file in enumerate(pickle.loads(pickle.dumps(found[:3]))):  # as another process gets them
        part = raw[300 * number : 300 * number + 300].astype(np.float32) / 2**15
        np.testing.assert_array_equal(file.load().feeds["x"], part[None])
    assert describe_reading(found, preprocessing({})) == (
        "audio was read at the files' rate, 16000 Hz; --preprocess rate=HZ resamples it",
        "the last 100 of 1000 samples of a.wav fill no set of 300 and were not read, and of 1 more files",
    )
    resampled = find(tmp_path, [TensorSpec("x", "float32", (1, 288))], rate="8000")
    assert [file.label for file in resampled] == ["a.wav", "b10.wav"]
    rate, rest = describe_reading(resampled, preprocessing({}))
    assert rate == "audio was resampled from 16000 to 8000 Hz"
    assert rest.startswith("the last 212 of 500 samples of a.wav")


def test_a_fixed_batch_takes_windows_in_order(tmp_path: Path) -> None:
    raw = noise(70)
    found = find(wav(tmp_path / "a.wav", raw), [TensorSpec("x", "float32", (3, 10))])
    assert [file.label for file in found] == ["a.wav[0]", "a.wav[30]"]
    second = found[1].load().feeds["x"]
    np.testing.assert_array_equal(second, raw[30:60].reshape(3, 10).astype(np.float32) / 2**15)


def test_windows_of_a_resampled_file_are_the_whole_of_it(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", noise(4410), 44100)
    whole = read(path, "T", rate="16000")
    parts = [
        file.load().feeds["x"] for file in find(path, [TensorSpec("x", "float32", (400,))], rate="16000")
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_rate_and_length_are_derived_and_a_state_may_be_missing(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", noise(441), 44100)
    specs = (
        TensorSpec("input", "float32", ("N", "T")),
        TensorSpec("state", "float32", (2, "N", 128)),
        SR,
        TensorSpec("audio_lengths", "int32", ("N",)),
    )

    def feeds(**options: str) -> Mapping[str, Any]:
        settings = preprocessing(options)
        (file,) = find_samples(path, specs, 10, settings=settings, optional=frozenset({"state"}))
        return file.load().feeds

    own, resampled = feeds(), feeds(rate="16000")
    assert (own["sr"], own["sr"].dtype, own["sr"].shape) == (44100, np.int64, ())
    np.testing.assert_array_equal(own["audio_lengths"], np.array([441], np.int32))
    assert own["state"].shape == (2, 1, 128)
    assert resampled["sr"] == 16000
    assert resampled["audio_lengths"] == [160] == [resampled["input"].shape[1]]


@pytest.mark.parametrize("name", ["sr", "sample_rate", "sampling_rate", "sampleRate", "input.fs"])
def test_names_of_a_sample_rate(tmp_path: Path, name: str) -> None:
    rate = TensorSpec(name, "int64", (1,))
    (file,) = find(wav(tmp_path / "a.wav", noise(10)), (*OPEN, rate))
    np.testing.assert_array_equal(file.load().feeds[name], [16000])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            (*OPEN, TensorSpec("speaker", "int64", ("N",)), SR),
            r"a\.wav is one waveform: the model takes x: float32\[N, T\], speaker: int64\[N\]; "
            r"use \.npz files with the keys 'x', 'speaker', 'sr'",
        ),
        (
            [TensorSpec("mel", "float32", (1, 80, 3000))],
            r"a\.wav is audio and fits no input: the model takes mel: float32\[1, 80, 3000\], which is no waveform",
        ),
        ([TensorSpec("ids", "int64", ("N", "T"))], "which is no waveform"),
        ([TensorSpec("x", "float32", ("N", "C", "T"))], "which is no waveform"),
        ([TensorSpec("x", "float32", (1, 3, 224, 224))], r"save \.npz files with the key 'x'"),
        ([TensorSpec("x", "float32", (3, "T"))], "3 of one length in one batch"),
        ([TensorSpec("x", "float32", (1, 6, "T"))], r"a\.wav has 2 channels: the model takes .*, 6 channels"),
        ([TensorSpec("x", "float32", (1, 900))], r"has 500 samples at 16000 Hz: .* at least 900 samples"),
        ([TensorSpec("x", "float32", (2, 300))], r"2 windows; give files of at least 600 samples"),
    ],
)
def test_models_that_a_file_does_not_fit(tmp_path: Path, inputs: Sequence[TensorSpec], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(wav(tmp_path / "a.wav", noise(500, 2)), inputs)


def test_damaged_empty_and_compressed_files_are_named_with_the_command_that_rewrites_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a b.wav"
    whole = wav(path, noise(100)).read_bytes()
    fix = r"rewrite it: ffmpeg -i '.*a b\.wav' -c:a pcm_s16le '.*a b-pcm\.wav'"
    broken = {
        b"not audio at all": "does not start with RIFF",
        whole[:9]: "not a WAVE file",
        whole[:30]: "it ends within its header",
        whole[:120]: "its header says 100 samples, more than its 120 bytes hold",
        whole[:24] + struct.pack("<I", 0) + whole[28:]: "its header says 0 Hz",
        whole[:22] + struct.pack("<H", 0) + whole[24:]: "bad # of channels",
        whole[:34] + struct.pack("<H", 64) + whole[36:]: "64 bits per sample",
    }
    for content, message in broken.items():
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"cannot be read: .*{message}.*; {fix}"):
            find(path)
    for content in (b"", raw_wav(path, b"").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(InputError, match="has no samples; remove it"):
            find(path)
    for tag in (2, 7, 0x55):  # ADPCM, mu-law, MP3
        raw_wav(path, bytes(100), tag=tag, bits=8)
        with pytest.raises(InputError, match=f"is compressed: its format is {tag}, .*; {fix}"):
            find(path)
    raw_wav(path, bytes(100), tag=3, bits=32)
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(InputError, match=f"cannot be read: .*; {fix}"):
        find(path)


def test_settings_of_the_other_kind_are_wrong_usage(tmp_path: Path) -> None:
    wav(tmp_path / "a.wav", noise(10))
    with pytest.raises(UsageError, match=r"--preprocess resize is for images, and .* holds none"):
        find(tmp_path, resize="32")
    for value in ("16k", "0", "-1", "1e4", "800000", "16000.5"):
        with pytest.raises(UsageError, match=rf"rate={value}: write a rate in Hz, 1 to 768000"):
            preprocessing({"rate": value})
    (tmp_path / "preprocess.yaml").write_text("rate: true")
    with pytest.raises(InputError, match=r"preprocess\.yaml has rate=True: write a rate in Hz"):
        preprocessing({}, tmp_path)


def test_without_scipy_plain_files_are_read_and_the_rest_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wav(tmp_path / "a.wav", noise(10))
    floats = wav(tmp_path / "b.wav", np.zeros(10, np.float32))
    for name in ("scipy", "scipy.io.wavfile", "scipy.signal"):
        monkeypatch.setitem(sys.modules, name, None)
    assert find(path)[0].load().feeds["x"].shape == (1, 10)
    assert find(path, rate="16000")[0].load().feeds["x"].shape == (1, 10)
    with pytest.raises(
        MissingDependencyError, match=r"a\.wav cannot be resampled.*pip install 'onnxport\[audio\]'"
    ):
        find(path, rate="8000")
    with pytest.raises(MissingDependencyError, match=r"b\.wav cannot be read: SciPy is not installed"):
        find(floats)


def test_windows_of_one_file_are_no_repetitions_of_each_other(tmp_path: Path) -> None:
    raw = noise(40)
    path = wav(tmp_path / "a.wav", np.concatenate([raw, raw[:10]]))
    assert duplicates(find(path, [TensorSpec("x", "float32", (1, 10))])) == ((0, 4),)


def test_a_file_that_shrinks_after_it_was_found_is_named(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", noise(100))
    (file,) = find(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="it ends before the samples that its header says"):
        file.load()
