"""Boosted trees: the ONNX model answers as the library does, on real tables with missing values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
import xgboost
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from onnxport import export_model
from onnxport.core.errors import CannotConvertError, InputError, OnnxportError, UsageError
from onnxport.exporters.classical import boosters, estimators
from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import SourceRuntime
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams

_SOURCE = Source("tests:model", "python", (Path(__file__),), is_factory=True)


def _holes(table: Any, share: float = 0.1) -> Any:
    """float32 with missing values; the rest as it was, on the thresholds that were learned from it."""
    random = np.random.default_rng(0)
    return np.where(random.random(table.shape) < share, np.nan, table).astype(np.float32)


CANCER, WINE, DIABETES = (
    (_holes(table), answers)
    for table, answers in (load(return_X_y=True) for load in (load_breast_cancer, load_wine, load_diabetes))
)


def _categories() -> tuple[Any, Any]:
    """A DataFrame of a categorical column with missing values and a number, and what depends on both."""
    random = np.random.default_rng(1)
    letters, numbers = random.choice(list("abcdefgh"), 300), random.normal(size=300)
    answers = np.isin(letters, ["a", "c", "h"]) * 2 + numbers
    frame = pandas.DataFrame({"letter": pandas.Categorical(letters), "number": numbers})
    frame.loc[::7, "letter"] = None
    return frame, answers


def _xgboost(kind: str, data: tuple[Any, Any], **options: Any) -> Any:
    made = getattr(xgboost, kind)(**{"n_estimators": 12, "max_depth": 3, "n_jobs": 1} | options)
    return made.fit(*data)


def _lightgbm(kind: str, data: tuple[Any, Any], **options: Any) -> Any:
    made = getattr(lightgbm, kind)(
        **{"n_estimators": 12, "num_leaves": 7, "n_jobs": 1, "verbose": -1} | options
    )
    return made.fit(*data)


def _catboost(kind: str, data: tuple[Any, Any], **options: Any) -> Any:
    given = {"iterations": 12, "depth": 3, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return getattr(catboost, kind)(**given | options).fit(*data)


TWICE = (DIABETES[0], np.stack([DIABETES[1], -DIABETES[1]], axis=1))
NAMED = (CANCER[0], np.where(CANCER[1] > 0, "benign", "malignant"))
ZEROS = (np.where(np.isnan(DIABETES[0]), 0, DIABETES[0]), DIABETES[1])

# What each library can be asked to do that its answers are computed otherwise for.
CASES: dict[str, Callable[[], Any]] = {
    "xgboost binary": lambda: _xgboost("XGBClassifier", CANCER, base_score=0.3),
    "xgboost classes": lambda: _xgboost("XGBClassifier", WINE),
    "xgboost hinge": lambda: _xgboost("XGBClassifier", CANCER, objective="binary:hinge"),
    "xgboost number": lambda: _xgboost("XGBRegressor", DIABETES),
    "xgboost exp": lambda: _xgboost("XGBRegressor", DIABETES, objective="count:poisson"),
    "xgboost dart": lambda: _xgboost("XGBRegressor", DIABETES, booster="dart", rate_drop=0.5),
    "xgboost categories": lambda: _xgboost(
        "XGBRegressor", _categories(), enable_categorical=True, max_cat_to_onehot=1
    ),
    "xgboost zero is missing": lambda: _xgboost("XGBRegressor", ZEROS, missing=0.0),
    "xgboost vectors": lambda: _xgboost("XGBRegressor", TWICE, multi_strategy="multi_output_tree"),
    "xgboost forest": lambda: _xgboost("XGBRFClassifier", CANCER),
    "xgboost booster": lambda: _xgboost("XGBClassifier", WINE).get_booster(),
    "lightgbm binary": lambda: _lightgbm("LGBMClassifier", CANCER, sigmoid=2.0),
    "lightgbm texts": lambda: _lightgbm("LGBMClassifier", NAMED),
    "lightgbm classes": lambda: _lightgbm("LGBMClassifier", WINE),
    "lightgbm each alone": lambda: _lightgbm("LGBMClassifier", WINE, objective="multiclassova"),
    "lightgbm number": lambda: _lightgbm("LGBMRegressor", DIABETES),
    "lightgbm zero is missing": lambda: _lightgbm("LGBMRegressor", ZEROS, zero_as_missing=True),
    "lightgbm nothing is missing": lambda: _lightgbm("LGBMRegressor", DIABETES, use_missing=False),
    "lightgbm square root": lambda: _lightgbm("LGBMRegressor", DIABETES, reg_sqrt=True),
    "lightgbm exp": lambda: _lightgbm("LGBMRegressor", DIABETES, objective="gamma"),
    "lightgbm forest": lambda: _lightgbm(
        "LGBMRegressor", DIABETES, boosting_type="rf", subsample=0.7, subsample_freq=1
    ),
    "lightgbm lines": lambda: _lightgbm("LGBMRegressor", DIABETES, linear_tree=True),
    "lightgbm categories": lambda: _lightgbm("LGBMRegressor", _categories(), min_data_per_group=2),
    "lightgbm booster": lambda: _lightgbm("LGBMClassifier", WINE).booster_,
    "catboost binary": lambda: _catboost("CatBoostClassifier", CANCER),
    "catboost missing is most": lambda: _catboost("CatBoostClassifier", CANCER, nan_mode="Max"),
    "catboost texts": lambda: _catboost("CatBoostClassifier", NAMED),
    "catboost classes": lambda: _catboost("CatBoostClassifier", WINE),
    "catboost number": lambda: _catboost("CatBoostRegressor", DIABETES),
    "catboost two numbers": lambda: _catboost("CatBoostRegressor", TWICE, loss_function="MultiRMSE"),
    "catboost free trees": lambda: _catboost("CatBoostRegressor", DIABETES, grow_policy="Lossguide"),
}


def _table(case: str) -> Any:
    if "categories" in case:
        frame, _ = _categories()
        codes = frame["letter"].cat.codes.to_numpy().astype(np.float32)
        codes[::13] = 99  # no category that was seen
        codes[1::13] = -1
        return np.stack([np.where(codes[:] == -1, np.nan, codes), frame["number"]], axis=1).astype(np.float32)
    of_classes = {"binary": CANCER, "hinge": CANCER, "texts": CANCER, "most": CANCER}
    of_classes |= {"classes": WINE, "booster": WINE, "alone": WINE}
    table = of_classes.get(case.split()[-1], DIABETES)[0]
    if case == "xgboost forest":
        table = CANCER[0]
    table = table[:200].copy()
    table[3] = np.nan
    table[5] = 0
    return table


@pytest.mark.parametrize("case", CASES)
def test_the_onnx_model_answers_as_the_library(case: str, tmp_path: Path) -> None:
    model = CASES[case]()
    exported = boosters.of_object(model, _SOURCE, ExportParams()).export(tmp_path / "model.onnx", None)
    session = onnxruntime.InferenceSession(exported.path)
    table = _table(case)
    given = dict(
        zip([each.name for each in session.get_outputs()], session.run(None, {"input": table}), strict=True)
    )
    for name, wanted in _library_says(model, table).items():
        found = given.get(name)
        assert found is not None, name
        wanted = np.asarray(wanted)
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found.ravel(), wanted.ravel().astype(np.float64), rtol=2e-5, atol=2e-5)
        else:
            assert (found.ravel() == wanted.ravel()).all()


def _library_says(model: Any, table: Any) -> dict[str, Any]:
    if isinstance(model, xgboost.Booster):
        return {"probabilities": model.inplace_predict(table)}
    if isinstance(model, lightgbm.Booster):
        return {"probabilities": model.predict(table)}
    if hasattr(model, "predict_proba"):
        return {"label": model.predict(table), "probabilities": model.predict_proba(table)}
    return {"prediction": model.predict(table)}


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_a_booster_in_a_pipeline_answers_as_the_pipeline(library: str, tmp_path: Path) -> None:
    booster: Any = {
        "xgboost": xgboost.XGBClassifier(n_estimators=5, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1),
        "catboost": catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False),
    }[library]
    table, answers = NAMED if library == "lightgbm" else CANCER
    pipeline = make_pipeline(SimpleImputer(), booster).fit(table, answers)
    framework = estimators.of_object(pipeline, _SOURCE, ExportParams())
    path = framework.export(tmp_path / "model.onnx", None).path
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name
    first = session.run(None, {name: table})[0].ravel()
    wanted = np.asarray(pipeline.predict(table)).ravel()
    if library == "catboost":
        np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-5)
    else:
        assert (first == wanted).mean() > 0.99, "the imputer's means are rounded before the trees ask"


def test_early_stopping_ends_an_estimator_at_its_best_round(tmp_path: Path) -> None:
    model = xgboost.XGBRegressor(n_estimators=80, early_stopping_rounds=1, learning_rate=1.0, n_jobs=1)
    model.fit(
        DIABETES[0][:200], DIABETES[1][:200], eval_set=[(DIABETES[0][200:], DIABETES[1][200:])], verbose=False
    )
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    path = boosters.of_object(model, _SOURCE, ExportParams()).export(tmp_path / "model.onnx", None).path
    found = onnxruntime.InferenceSession(path).run(None, {"input": DIABETES[0]})[0]
    np.testing.assert_allclose(found[:, 0], model.predict(DIABETES[0]), rtol=1e-5)


def test_a_float64_threshold_parts_float32_rows_as_lightgbm_does(tmp_path: Path) -> None:
    """On 0.1 itself, whose nearest float32 lies above, and beside it."""
    table = np.repeat([[0.1], [0.3]], 40, axis=0)
    model = lightgbm.LGBMRegressor(n_estimators=1, min_child_samples=1, verbose=-1, n_jobs=1)
    model.fit(table, table[:, 0])
    saved = model.booster_.model_to_string()
    line = next(each for each in saved.splitlines() if each.startswith("threshold="))
    booster = lightgbm.Booster(model_str=saved.replace(line, "threshold=0.10000000000000001"))
    path = boosters.of_object(booster, _SOURCE, ExportParams()).export(tmp_path / "model.onnx", None).path
    near = np.float32(0.1)
    rows = np.array([[near], [np.nextafter(near, np.float32(0))], [np.nextafter(near, np.float32(1))]])
    found = onnxruntime.InferenceSession(path).run(None, {"input": rows})[0]
    np.testing.assert_allclose(found[:, 0], booster.predict(rows.astype(np.float64)), rtol=1e-6)
    assert found[0] != found[1], "the nearest float32 is above 0.1"


@pytest.fixture(scope="module")
def xgboost_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("xgboost") / "booster.json"
    _xgboost("XGBRegressor", DIABETES).get_booster().save_model(path)
    return path


@pytest.fixture(scope="module")
def judged(
    xgboost_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Callable[[onnx.AttributeProto], None], Path | None], str]]:
    """The verdict on what was exported, with one of its attributes changed."""
    folder = tmp_path_factory.mktemp("judged")
    output = folder / "right.onnx"
    with SourceRuntime(Source.of(xgboost_file), ExportParams(), folder, timeout=60) as runtime:
        runtime.export(output, None)

        def verdict(change: Callable[[onnx.NodeProto], None], inputs: Path | None = None) -> str:
            model = onnx.load(output)
            change(next(node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor"))
            broken = output.with_name("broken.onnx")
            onnx.save(model, broken)
            params = ValidateParams(inputs=inputs)
            with Judge(
                Source.of(xgboost_file), params, graph=Model.load(output), runtime=runtime.again()
            ) as judge:
                return judge.verdict(Artifact.open(broken)).verdict

        yield verdict


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(each for each in node.attribute if each.name == name)


def _misdirect_missing(node: onnx.NodeProto) -> None:
    tracks = _attribute(node, "nodes_missing_value_tracks_true").ints
    place = next(i for i, mode in enumerate(_attribute(node, "nodes_modes").strings) if mode != b"LEAF")
    tracks[place] = 1 - tracks[place]


def _include_the_threshold(node: onnx.NodeProto) -> None:
    modes = _attribute(node, "nodes_modes").strings
    modes[0] = b"BRANCH_LEQ"


def test_a_missing_value_sent_the_wrong_way_is_caught(judged: Any) -> None:
    assert judged(lambda node: None) == "proven"
    assert judged(_misdirect_missing) == "not equivalent"


def test_a_row_on_a_threshold_sent_the_wrong_way_is_caught(judged: Any) -> None:
    assert judged(_include_the_threshold) == "not equivalent"


def test_missing_values_of_the_users_count(judged: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", input=DIABETES[0][:60])
    assert judged(lambda node: None, tmp_path) == "proven"
    assert judged(_misdirect_missing, tmp_path) == "not equivalent"


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_a_librarys_own_file_is_exported_and_proven(library: str, tmp_path: Path) -> None:
    if library == "xgboost":
        source = tmp_path / "model.ubj"
        _xgboost("XGBClassifier", CANCER).save_model(source)
    elif library == "lightgbm":
        source = tmp_path / "model.txt"
        _lightgbm("LGBMClassifier", CANCER).booster_.save_model(source)
    else:
        source = tmp_path / "model.cbm"
        _catboost("CatBoostClassifier", CANCER).save_model(str(source))
    result = export_model(source, tmp_path / "model.onnx")
    assert result.report.verdict == "proven"
    assert result.run.source.format == library


def test_categories_of_catboost_are_refused_with_the_reason() -> None:
    frame, answers = _categories()
    frame["letter"] = frame["letter"].astype(object).fillna("none").astype(str)
    model = _catboost("CatBoostRegressor", (frame, answers), cat_features=["letter"])
    with pytest.raises(CannotConvertError, match=r"categorical features: .*hashes.*letter.*ordinal"):
        boosters.of_object(model, _SOURCE, ExportParams())


def test_a_booster_without_trees_is_refused() -> None:
    model = _xgboost("XGBRegressor", ZEROS, booster="gblinear", max_depth=None)
    with pytest.raises(CannotConvertError, match="no trees: its booster is gblinear"):
        boosters.of_object(model, _SOURCE, ExportParams())


def test_an_estimator_that_was_not_fitted_is_refused() -> None:
    for model in (xgboost.XGBRegressor(), lightgbm.LGBMRegressor(), catboost.CatBoostRegressor()):
        with pytest.raises(InputError, match="not fitted"):
            boosters.of_object(model, _SOURCE, ExportParams())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("package.json", json.dumps({"name": "left-pad"}), "no 'learner'|'learner' at its top"),
        ("notes.txt", "trees are green\nand tall", "not a LightGBM model"),
        ("model.cbm", "CBM1 and nothing more", "not a CatBoost model"),
        ("model.ubj", "{nothing", "not an XGBoost model"),
    ],
)
def test_a_file_that_is_no_model_is_refused(name: str, content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    source = Source.of(path)
    with pytest.raises(InputError, match=said):
        boosters.load(source, ExportParams())


def test_a_damaged_file_that_ends_the_library_s_process_is_said_to_be_one(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.ubj", tmp_path / "cut.ubj"
    _xgboost("XGBClassifier", CANCER).save_model(whole)
    cut.write_bytes(whole.read_bytes()[:200])  # of which XGBoost 3.2 dies with a segmentation fault
    with pytest.raises(OnnxportError, match=r"may be damaged|not an XGBoost model"):
        export_model(cut, tmp_path / "model.onnx")


def test_float64_is_refused_where_the_library_compares_in_float32(xgboost_file: Path) -> None:
    with pytest.raises(UsageError, match="compares in float32 itself"):
        boosters.load(Source.of(xgboost_file), ExportParams(float64=True))


def test_a_table_of_another_type_is_refused(xgboost_file: Path) -> None:
    params = ExportParams(input=["x=1,10:int64"])
    with pytest.raises(UsageError, match=r"'x' is int64, and the file takes float32; give --input x=1,10"):
        boosters.load(Source.of(xgboost_file), params)
