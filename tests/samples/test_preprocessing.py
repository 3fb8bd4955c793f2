"""The settings of image preprocessing, from options and from the sidecar."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.core.errors import InputError, UsageError
from onnxport.samples.preprocessing import Preprocessing, preprocessing


def test_options_are_written_as_people_write_them() -> None:
    settings = preprocessing(
        {
            "resize": "256",
            "crop": "224x192",
            "scale": "1/255",
            "mean": "0.5, 0.25,1",
            "std": "2",
            "color": "bgr",
        }
    )
    assert (settings.resize, settings.crop) == ((256,), (224, 192))
    assert settings.scale == 1 / 255
    assert (settings.mean, settings.std, settings.color) == ((0.5, 0.25, 1.0), (2.0,), "bgr")


def test_a_sidecar_says_the_same_in_yaml_and_options_win(tmp_path: Path) -> None:
    (tmp_path / "preprocess.yaml").write_text(
        "resize: [224, 320]\nscale: 1/255\nmean: [0.485, 0.456, 0.406]\nstd: 0.5\nlayout: nhwc\n"
    )
    beside = preprocessing({}, tmp_path)
    assert beside == Preprocessing(
        resize=(224, 320), scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.5,), layout="nhwc"
    )
    mixed = preprocessing({"scale": "1", "resize": "64"}, tmp_path)
    assert (mixed.scale, mixed.resize, mixed.layout) == (1.0, (64,), "nhwc")


def test_the_report_can_quote_the_settings() -> None:
    assert str(preprocessing({"resize": "24x32", "std": "0.5"})) == "resize=24x32, std=0.5"
    assert str(preprocessing({})).startswith("none, bytes 0..255")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("means", "0.5", "--preprocess has no setting 'means'; the settings are resize, interpolation, crop"),
        ("mean", "0.5,x", "mean=0.5,x: 'x' is not a number"),
        ("std", "1,0,1", "std has a 0"),
        ("scale", "1/0", "scale=1/0: '1/0' is not a number"),
        ("scale", "inf", "scale=inf: 'inf' is no"),
        ("resize", "224,224", "resize=224,224: write N for the short side, or HEIGHTxWIDTH"),
        ("resize", "0", "resize=0: write N"),
        ("layout", "chw", "layout=chw: it should be 'nchw' or 'nhwc'"),
        ("color", "cmyk", "color=cmyk: it should be"),
    ],
)
def test_a_bad_option_is_wrong_usage_and_a_bad_sidecar_a_bad_file(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        preprocessing({name: value})
    assert message in str(refused.value)
    (tmp_path / "preprocess.yaml").write_text(f"{name}: '{value}'")
    with pytest.raises(InputError) as unread:
        preprocessing({}, tmp_path)
    assert "preprocess.yaml" in str(unread.value)
    assert message.removeprefix("--preprocess ") in str(unread.value)


@pytest.mark.parametrize(
    "content", [b"- a\n- b", b"mean: [0.5", b"\xff\xfe\x00", b"3: 4", b"!!python/object:os.system x"]
)
def test_a_sidecar_of_another_kind_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "preprocess.yml").write_bytes(content)
    with pytest.raises(InputError, match=r"preprocess\.yml"):
        preprocessing({}, tmp_path)


def test_an_empty_sidecar_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "preprocess.yaml").write_text("# mean: 1\n")
    assert preprocessing({}, tmp_path) == Preprocessing()
