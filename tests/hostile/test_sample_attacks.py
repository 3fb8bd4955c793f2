"""Samples made to run code, to fill the memory, or to lead elsewhere."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tests.cli.sandbox import DIGITS
from tests.hostile.attacking import Case, Target, registering

CASES: dict[str, Case] = {}
attack = registering(CASES)
IMAGE = (":samples", "in", "image=float32:N,1,8,8")


def put(target: Target, name: str, data: bytes) -> Path:
    file = target.folder / "in" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


class Evil:
    """An object whose pickle writes a file beside the folder when it is read."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._place}/pwned",)


def npy(array: object) -> bytes:
    written = io.BytesIO()
    np.save(written, np.asarray(array), allow_pickle=True)
    return written.getvalue()


def npz(**members: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return written.getvalue()


@attack(4, "pickles")
def array_of_objects_that_run_code(target: Target) -> tuple[str, ...]:
    put(target, "a.npy", npy(np.array([Evil(target.folder.parent)], dtype=object)))
    return IMAGE


@attack(4, "pickles")
def archive_of_objects_that_run_code(target: Target) -> tuple[str, ...]:
    put(target, "a.npz", npz(image=npy(np.array([Evil(target.folder.parent)], dtype=object))))
    return IMAGE


@attack(4, "its content is not that of an .npy file")
def pickle_that_calls_itself_an_array(target: Target) -> tuple[str, ...]:
    put(target, "a.npy", pickle.dumps(Evil(target.folder.parent)))
    return IMAGE


@attack(4, "its arrays take 859.0 GB unpacked; at most ", "--limit unpacked=")
def archive_that_unpacks_to_more_than_the_machine(target: Target) -> tuple[str, ...]:
    """A megabyte of zeros a thousand times over, whose header says a terabyte."""
    data = bytearray(npz(image=npy(np.zeros((1, 1, 8, 8), np.float32))))
    central = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, central + 24, 2**32 - 2)
    members = bytes(data[central : data.index(b"PK\x05\x06")])
    many = 200
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, many, many, len(members) * many, central, 0)
    names = [members.replace(b"image.npy", b"%05d.npy" % n) for n in range(many)]
    put(target, "a.npz", bytes(data[:central]) + b"".join(names) + end)
    return IMAGE


@attack(4, "a.npz")
def archive_that_names_places_elsewhere(target: Target) -> tuple[str, ...]:
    """Zip slip: nothing is unpacked to files, so that the name is only a name."""
    put(target, "a.npz", npz(**{"../../image": npy(np.zeros((1, 1, 8, 8), np.float32))}))
    return IMAGE


@attack(4, "a.npz")
def archive_in_an_archive(target: Target) -> tuple[str, ...]:
    inner = npz(image=npy(np.zeros(10_000_000, np.float32)))
    for _ in range(5):
        inner = npz(image=inner)
    put(target, "a.npz", inner)
    return IMAGE


@attack(4, "a.npy cannot be read")
def array_header_that_is_an_expression(target: Target) -> tuple[str, ...]:
    header = (
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('touch ../pwned'),), }"
    )
    header = header.ljust(117) + b"\n"
    put(target, "a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    return IMAGE


@attack(4, "a.npy")
def array_header_of_a_hundred_thousand_brackets(target: Target) -> tuple[str, ...]:
    header = b"(" * 60_000 + b")" * 5000 + b"\n"
    put(target, "a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    return IMAGE


@attack(4, "a.npy cannot be read")
def array_header_that_is_no_python(target: Target) -> tuple[str, ...]:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': ((((((1, 1, 8, 8), }".ljust(117) + b"\n"
    put(target, "a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    return IMAGE


@attack(4, "a.npy cannot be read")
def array_header_with_names_of_another_kind(target: Target) -> tuple[str, ...]:
    header = b"{'descr': '<f4', 'fortran_order': False, (1, 2): (1, 1, 8, 8), }".ljust(117) + b"\n"
    put(target, "a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    return IMAGE


@attack(4, "its member 'image' is not an array")
def archive_whose_array_is_text(target: Target) -> tuple[str, ...]:
    put(target, "a.npz", npz(image=b"no array"))
    return IMAGE


@attack(4, "a.npz cannot be read")
def archive_whose_packed_numbers_are_damaged(target: Target) -> tuple[str, ...]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("image.npy", bytes(5000))
    data = bytearray(out.getvalue())
    data[60:64] = b"\xff" * 4  # behind the header of the member and that of LZMA
    put(target, "a.npz", bytes(data))
    return IMAGE


@attack(4, "a.safetensors cannot be read")
def safetensors_with_an_endless_header(target: Target) -> tuple[str, ...]:
    put(target, "a.safetensors", struct.pack("<Q", 2**63) + b"{}")
    return IMAGE


@attack(4, "a.safetensors cannot be read")
def safetensors_that_overlap(target: Target) -> tuple[str, ...]:
    entry = '{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}'
    header = ("{" + ",".join(f'"t{n}":{entry}' for n in range(1000)) + "}").encode()
    put(target, "a.safetensors", struct.pack("<Q", len(header)) + header + bytes(256))
    return IMAGE


def _png(width: int, height: int, *more: tuple[bytes, bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), *more, (b"IDAT", zlib.compress(bytes(1_000_000))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


@attack(4, "a.png is too large", "million pixels", "shrink it")
def image_of_ten_billion_pixels(target: Target) -> tuple[str, ...]:
    put(target, "a.png", _png(100_000, 100_000))
    return IMAGE


@attack(4, "a.png is too large", "million pixels", "shrink it")
def image_just_above_what_pillow_warns_of(target: Target) -> tuple[str, ...]:
    put(target, "a.png", _png(10_000, 10_000))
    return IMAGE


@attack(4, "a.png")
def image_with_a_text_that_unpacks_to_a_gigabyte(target: Target) -> tuple[str, ...]:
    put(target, "a.png", _png(8, 8, (b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 30), 1))))
    return IMAGE


@attack(4, "a.apng cannot be read", "frames, more than its bytes hold")
def animation_of_two_billion_frames(target: Target) -> tuple[str, ...]:
    put(target, "a.apng", _png(8, 8, (b"acTL", struct.pack(">II", 2**31 - 1, 0))))
    return IMAGE


@attack(4, "a.csv has")
def table_with_one_cell_as_long_as_all_others(target: Target) -> tuple[str, ...]:
    rows = b"1\n" * 200_000
    put(target, "a.csv", b"x\n" + b"9" * 130_000 + b"\n" + rows)
    return (":samples", "in", "x=int64:N,1")


@attack(4, "a.csv has '3000000000' in column 'x', row 0", "int32")
def table_with_a_number_that_would_wrap(target: Target) -> tuple[str, ...]:
    put(target, "a.csv", b"x\n3000000000\n")
    return (":samples", "in", "x=int32:N,1")


@attack(4, "a.csv has", "int64")
def table_with_a_number_of_forty_digits(target: Target) -> tuple[str, ...]:
    put(target, "a.csv", b"x\n" + b"9" * 40 + b"\n")
    return (":samples", "in", "x=int64:N,1")


@attack(4, "a.wav has no samples")
def sound_of_floats_without_samples(target: Target) -> tuple[str, ...]:
    form = struct.pack("<HHIIHH", 3, 1, 16000, 64000, 4, 32)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", 0)
    head = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE"
    put(target, "a.wav", head + chunks)
    return (":samples", "in", "x=float32:N")


@attack(4, "a.wav cannot be read", "more than its")
def sound_of_two_billion_samples(target: Target) -> tuple[str, ...]:
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 2**31, b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16, b"data", 2**31
    )
    put(target, "a.wav", head + bytes(100))
    return (":samples", "in", "x=float32:N")


@attack(4, "its values are in another file")
def tensor_with_its_values_in_the_secret(target: Target) -> tuple[str, ...]:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1, 1, 8, 8], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../../secret.bin")
    put(target, "test_data_set_0/input_0.pb", tensor.SerializeToString())
    return IMAGE


@attack(4, "in holds no inputs")
def sample_that_is_a_link_to_a_device(target: Target) -> tuple[str, ...]:
    (target.folder / "in").mkdir()
    (target.folder / "in" / "a.npz").symlink_to("/dev/zero")
    return IMAGE


def _settings(target: Target, text: bytes) -> tuple[str, ...]:
    put(target, "preprocess.yaml", text)
    return (":preprocessing", "in")


@attack(4, "preprocess.yaml cannot be read", "nested too deeply")
def settings_of_many_levels(target: Target) -> tuple[str, ...]:
    return _settings(target, b"[" * 100_000)


@attack(4, "preprocess.yaml cannot be read", "1,500,000 bytes")
def settings_of_many_bytes(target: Target) -> tuple[str, ...]:
    return _settings(target, b"#" * 1_500_000)


@attack(4, "preprocess.yaml cannot be read")
def settings_with_a_day_that_is_none(target: Target) -> tuple[str, ...]:
    return _settings(target, b"mean: 2026-99-99")


@attack(2, "passes.yaml is not YAML", "nested too deeply")
def passes_of_many_levels(target: Target) -> tuple[str, ...]:
    (target.folder / "passes.yaml").write_bytes(b"[" * 100_000)
    shutil.copy(DIGITS, target.folder)
    return ("optimize", "digits.onnx", "--passes", "passes.yaml", "-o", "out.onnx")


@attack(4, "operators.onnx cannot be read", "not a regular file")
def operators_without_an_end(target: Target) -> tuple[str, ...]:
    os.mkfifo(target.folder / "operators.onnx")
    shutil.copy(DIGITS, target.folder)
    return ("convert", "digits.onnx", "--to", "ort", "--operators", "operators.onnx", "-o", "out.ort")


@pytest.mark.parametrize("name", CASES)
def test_sample_attack_is_refused(name: str, target: Target) -> None:
    case = CASES[name]
    target.refuses(case.code, case.prepare(target), *case.says)


def test_valid_samples_pass(target: Target) -> None:
    """So that a refusal above is of the attack."""
    put(target, "a.npz", npz(image=npy(np.zeros((1, 1, 8, 8), np.float32))))
    put(target, "b.npy", npy(np.zeros((1, 1, 8, 8), np.float32)))
    put(target, "c.png", _png(8, 8))
    target.refuses(0, IMAGE)
