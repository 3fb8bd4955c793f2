"""Tables as inputs: columns by name or order, types, missing values, and what is said of those that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxport.core.errors import InputError
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.readers import find_samples
from onnxport.samples.tables import read_table

WHOLE = (TensorSpec("X", "float32", ("N", 2)),)
COLUMNS = (
    TensorSpec("age", "float64", ("N", 1)),
    TensorSpec("sex", "string", ("N", 1)),
    TensorSpec("children", "int64", ("N", 1)),
)


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    read = read_table(table(tmp_path, "children,sex,other,age\n2,f,x,40.5\n0,,y,\n"), COLUMNS)
    np.testing.assert_array_equal(read["age"], [[40.5], [np.nan]])
    assert read["sex"].tolist() == [["f"], ["nan"]]
    assert read["children"].tolist() == [[2], [0]]
    assert read["children"].dtype == np.int64


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4\n", "1,2\n3,4\n", "a;b\n1;2\n3;4\n", "\ufeffa\tb\n1\t2\n3\t4\n\n"]
)
def test_one_tensor_takes_the_columns_in_order(text: str, tmp_path: Path) -> None:
    read = read_table(table(tmp_path, text), WHOLE)
    assert read["X"].tolist() == [[1, 2], [3, 4]]
    assert read["X"].dtype == np.float32


def test_features_are_picked_by_name(tmp_path: Path) -> None:
    read = read_table(table(tmp_path, "label,b,a\n7,2,1\n"), WHOLE, ("a", "b"))
    assert read["X"].tolist() == [[1, 2]]


def test_float64_keeps_every_digit(tmp_path: Path) -> None:
    spec = (TensorSpec("X", "float64", ("N", 1)),)
    assert read_table(table(tmp_path, "a\n0.1000000000000000055511151231257827\n"), spec)["X"][0, 0] == 0.1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,c\n1,2,3\n", r"3 columns: .*remove columns that are no features"),
        ("a\n1\n", "1 columns"),
        ("a,b\n1,two\n", r"'two' in column 'b', row 0: the model takes float32"),
        ("a,b\n1,2\n3\n", "1 cells in row 1"),
        ("a,b\n", "has no rows: it has a header only"),
        ("", "has no rows: it is empty"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_table(table(tmp_path, text), WHOLE)


def test_an_unknown_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'children': it has age, sex"):
        read_table(table(tmp_path, "age,sex\n1,f\n"), COLUMNS)


@pytest.mark.parametrize(("cell", "said"), [("", "a missing value"), ("2.5", r"'2\.5'")])
def test_integers_are_whole_and_there(cell: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{said} in column 'children', row 1"):
        read_table(table(tmp_path, f"age,sex,children\n1,f,2.0\n1,f,{cell}\n"), COLUMNS)


def test_a_long_table_is_several_sets(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b\n" + "".join(f"{row},{row}\n" for row in range(2500)))
    for given in (path, tmp_path):
        samples = [file.load() for file in find_samples(given, WHOLE, 10, rows=1000)]
        assert [sample.feeds["X"].shape for sample in samples] == [(1000, 2), (1000, 2), (500, 2)]
        assert [sample.first_row for sample in samples] == [0, 1000, 2000]
        assert samples[2].feeds["X"][0, 0] == 2000


def test_a_table_is_rows_for_a_model_of_fixed_batch(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b\n1,2\n3,4\n5,6\n")
    files = find_samples(path, (TensorSpec("X", "float32", (1, 2)),), 10)
    assert [file.load().feeds["X"].tolist() for file in files] == [[[1, 2]], [[3, 4]], [[5, 6]]]
