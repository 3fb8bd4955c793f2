"""Generated inputs: seeded, inside their domain, different from each other."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.domain import Domain
from onnxport.samples.generator import COMPANIONS, KINDS, FloatKind, generate


def made(
    shape: tuple[int, ...],
    domain: Domain | None = None,
    dtype: str = "float32",
    *,
    kind: FloatKind = "image",
    seed: int = 0,
    index: int = 0,
    name: str = "x",
) -> Array:
    spec = TensorSpec(name, dtype, shape)
    known = {name: domain or Domain("real")}
    return generate({name: (spec, shape)}, known, kind=kind, seed=seed, index=index)[name]


def test_the_same_seed_gives_the_same_arrays_on_any_machine() -> None:
    """Recorded once; a change of numpy or of ours that changes inputs changes every verdict's ground."""
    digest = hashlib.sha256()
    for kind in KINDS:
        for shape in ((1, 3, 33, 17), (2, 20, 5), (4,), ()):
            digest.update(made(shape, kind=kind).tobytes())
    digest.update(made((3, 9), Domain("integer", 0, 99), "int64").tobytes())
    digest.update(made((3, 9), Domain("mask"), "int64", index=1).tobytes())
    assert digest.hexdigest() == "774accf7bf4dcaf9504db7a4848dd46648dd0a4addf1a06db844e6c17c0b7d59"


def test_another_seed_set_or_name_gives_other_values() -> None:
    one = made((2, 50), kind="normal")
    assert not np.array_equal(one, made((2, 50), kind="normal", seed=1))
    assert not np.array_equal(one, made((2, 50), kind="normal", index=3))
    assert not np.array_equal(one, made((2, 50), kind="normal", name="y"))


def test_an_input_keeps_its_values_when_another_one_is_added() -> None:
    x, y = TensorSpec("x", "float32", (4, 5)), TensorSpec("y", "float32", (4, 5))
    real = Domain("real")
    both = generate(
        {"x": (x, (4, 5)), "y": (y, (4, 5))}, {"x": real, "y": real}, kind="normal", seed=0, index=0
    )
    np.testing.assert_array_equal(both["x"], made((4, 5), kind="normal"))


@pytest.mark.parametrize("shape", [(2, 3, 40, 60), (2, 40, 60, 3), (1, 1, 28, 28)])
def test_images_are_whole_numbers_of_0_to_255_smooth_and_each_one_its_own(shape: tuple[int, ...]) -> None:
    image = made(shape)
    assert image.shape == shape
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, np.round(image))
    assert (image.min(), image.max()) == (0, 255)
    rows = 2 if shape[1] in (1, 3) else 1
    step = np.abs(np.diff(image, axis=rows)).mean()
    assert step < 0.25 * image.std(), "neighbouring rows of a photo are alike, those of noise are not"
    if shape[0] > 1:
        assert not np.array_equal(image[0], image[1])


def test_other_floats_of_the_image_kind_are_smooth_along_their_longest_axis() -> None:
    signal = made((2, 400, 3))
    assert np.abs(signal).max() <= 1
    assert np.abs(np.diff(signal, axis=1)).mean() < 0.2 * signal.std()


def test_the_kinds_differ_in_range() -> None:
    assert made((100,), kind="normal").min() < -1
    uniform = made((100,), kind="uniform")
    assert 0 <= uniform.min() < uniform.max() < 1


@pytest.mark.parametrize("index", range(4))
def test_ids_stay_in_range_and_reach_its_ends(index: int) -> None:
    ids = made((8, 200), Domain("integer", 0, 9), "int64", index=index)
    assert ids.dtype == np.int64
    assert set(np.unique(ids)) <= set(range(10))
    if index % 2 == 0:
        assert {0, 9} <= set(np.unique(ids))


def test_masks_are_ones_then_zeros_and_all_ones_in_the_first_set() -> None:
    assert (made((5, 16), Domain("mask"), "int64") == 1).all()
    mask = made((5, 16), Domain("mask"), "float32", index=1)
    assert (np.diff(mask, axis=1) <= 0).all()
    assert (mask.sum(axis=1) >= 8).all()
    assert len(np.unique(mask.sum(axis=1))) > 1


def test_lengths_lie_within_the_longest_other_dimension() -> None:
    specs = {
        "tokens": (TensorSpec("tokens", "int64", ("N", "T")), (4, 12)),
        "length": (TensorSpec("length", "int64", ("N",)), (4,)),
    }
    known = {"tokens": Domain("integer", 0, 5), "length": Domain("length")}
    lengths = generate(specs, known, kind="image", seed=0, index=0)["length"]
    assert lengths.min() >= 1
    assert lengths.max() <= 12


def test_a_choice_takes_turns() -> None:
    domain = Domain("choice", values=(16000, 8000))
    assert [int(made((), domain, "int64", index=index)) for index in range(3)] == [16000, 8000, 16000]


def test_positive_floats_are_positive() -> None:
    assert made((50,), Domain("real", positive=True), kind="normal").min() > 0


def test_features_lie_around_what_their_scaler_was_fitted_to() -> None:
    x = made((500, 2), Domain("real", center=(100.0, -5.0), spread=(10.0, 0.1)))
    np.testing.assert_allclose(x.mean(0), [100, -5], rtol=0.02)
    np.testing.assert_allclose(x.std(0), [10, 0.1], rtol=0.1)


def test_uint8_images_are_images() -> None:
    image = made((1, 40, 60, 3), Domain("integer", 0, 255), "uint8")
    assert image.dtype == np.uint8
    assert np.abs(np.diff(image.astype(int), axis=1)).mean() < 0.25 * image.std()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "string"])
def test_an_input_without_dimensions_is_an_array(dtype: str, kind: FloatKind) -> None:
    domain = Domain({"float32": "real", "bool": "mask"}.get(dtype, "integer"))  # type: ignore[arg-type]
    array = made((), domain, dtype, kind=kind)
    assert isinstance(array, np.ndarray)
    assert array.shape == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "domain", [Domain("real"), Domain("mask"), Domain("length"), Domain("integer", 0, 9)]
)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 3, 8, 8)])
def test_an_input_without_elements_is_empty(shape: tuple[int, ...], domain: Domain, kind: FloatKind) -> None:
    dtype = "float32" if domain.kind == "real" else "int64"
    array = made(shape, domain, dtype, kind=kind)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))


def test_a_length_beside_an_empty_sequence_is_drawn() -> None:
    specs = {"x": TensorSpec("x", "float32", (1, 0)), "n": TensorSpec("n", "int64", (1,))}
    given = {name: (spec, tuple(map(int, map(str, spec.shape)))) for name, spec in specs.items()}
    known = {"x": Domain("real"), "n": Domain("length")}
    assert generate(given, known, kind="normal", seed=0, index=0)["n"].tolist() == [1]


IMAGE = (1, 3, 40, 60)


@pytest.mark.parametrize("kind", [*KINDS, *COMPANIONS])
@pytest.mark.parametrize("bounds", [(0.0, 255.0), (0.0, 1.0)])
def test_an_image_before_its_normalisation_stays_in_range(
    kind: FloatKind, bounds: tuple[float, float]
) -> None:
    image = made(IMAGE, Domain("real", bounds=bounds), kind=kind)
    assert bounds[0] <= image.min()
    assert image.max() <= bounds[1]
    if kind in KINDS:
        assert np.ptp(image) > 0.7 * bounds[1], "it uses the range"


@pytest.mark.parametrize("kind", COMPANIONS)
@pytest.mark.parametrize(
    "domain",
    [
        Domain("integer", 3, 77),
        Domain("mask"),
        Domain("mask", values=(-10000, 0)),
        Domain("length"),
        Domain("position", 0, 4),
        Domain("one-hot"),
        Domain("real", positive=True),
        Domain("real", center=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0), spread=(0.1,) * 9),
    ],
)
def test_companions_keep_to_the_domain(kind: FloatKind, domain: Domain) -> None:
    drawn = made((2, 9), domain, "float32" if domain.kind in ("real", "one-hot") else "int64", kind=kind)
    assert drawn.shape == (2, 9)
    low, high = {
        "integer": (3, 77),
        "mask": (min(domain.values or (0, 1)), max(domain.values or (0, 1))),
        "length": (1, 9),
        "position": (0, 4),
        "one-hot": (0, 1),
    }.get(domain.kind, (1e-4 if domain.positive else -np.inf, np.inf))
    assert low <= drawn.min()
    assert drawn.max() <= high
    if domain.kind == "one-hot":
        assert (drawn.sum(-1) == 1).all()


def test_companions_are_what_their_names_say() -> None:
    assert not made(IMAGE, kind="zeros").any()
    assert np.unique(made(IMAGE, kind="constant")).tolist() == [1.0]
    sparse = made(IMAGE, kind="sparse")
    assert 0.02 < np.mean(sparse != 0) < 0.1
    assert np.abs(sparse).max() == 1000
    assert made((3,), kind="sparse").any(), "one value at least"
    assert np.std(made(IMAGE, kind="large")) > 5000
    tokens = made((1, 200), Domain("integer", 0, 99), "int64", kind="sparse")
    assert set(tokens.ravel().tolist()) == {0, 99}


def test_a_stream_begins_with_a_state_of_zeros_and_not_later() -> None:
    assert not made((2, 1, 8), Domain("state"), index=0).any()
    later = made((2, 1, 8), Domain("state"), index=1)
    assert 0.5 < np.abs(later).max() <= 1
    assert not made((2, 1, 8), Domain("state"), index=5, kind="zeros").any()
