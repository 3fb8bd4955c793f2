"""scikit-learn: what is exported answers as the estimator does on real tables; where it does not, rows are shown."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnxruntime
import pandas
import pytest
import skops.io
from sklearn import cluster, datasets, decomposition, ensemble, linear_model, naive_bayes, neighbors, svm
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onnxport import export_model
from onnxport.core.errors import (
    CannotConvertError,
    InputError,
    MissingDependencyError,
    NotProvenError,
    UsageError,
)
from onnxport.exporters.classical import estimators
from onnxport.exporters.classical.tabular import TabularModel
from onnxport.exporters.objects import from_pickle, from_skops
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

Table = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
TABLES: dict[str, Callable[[], Table]] = {
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True, scaled=False),
    "digits": lambda: datasets.load_digits(return_X_y=True),
}


def _scaled(estimator: Any) -> Any:
    return make_pipeline(StandardScaler(), estimator)


# Name to a table and an estimator to fit on it.
ESTIMATORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "LogisticRegression": ("breast_cancer", lambda: _scaled(linear_model.LogisticRegression())),
    "RandomForest": ("wine", lambda: ensemble.RandomForestClassifier(20, random_state=0)),
    "ExtraTrees": ("iris", lambda: ensemble.ExtraTreesClassifier(20, random_state=0)),
    "GradientBoosting": (
        "breast_cancer",
        lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
    ),
    "HistGradientBoosting": ("wine", lambda: ensemble.HistGradientBoostingClassifier(max_iter=10)),
    "SVC": ("wine", lambda: _scaled(svm.SVC())),
    "SVC of two classes": ("breast_cancer", lambda: _scaled(svm.SVC())),
    "LinearSVC": ("breast_cancer", lambda: _scaled(svm.LinearSVC())),
    "RidgeClassifier": ("breast_cancer", lambda: _scaled(linear_model.RidgeClassifier())),
    "KNeighbors": ("breast_cancer", lambda: _scaled(neighbors.KNeighborsClassifier())),
    "MLP": ("digits", lambda: _scaled(MLPClassifier((32,), max_iter=20, random_state=0))),
    "GaussianNB": ("iris", lambda: naive_bayes.GaussianNB()),
    "Ridge": ("diabetes", lambda: linear_model.Ridge()),
    "ElasticNet": ("diabetes", lambda: _scaled(linear_model.ElasticNet())),
    "RandomForestRegressor": ("diabetes", lambda: ensemble.RandomForestRegressor(20, random_state=0)),
    "IsolationForest": ("wine", lambda: ensemble.IsolationForest(n_estimators=20, random_state=0)),
    "PCA": ("wine", lambda: _scaled(decomposition.PCA(2))),
    "KMeans": ("wine", lambda: _scaled(cluster.KMeans(3, random_state=0))),
}


def fitted(name: str) -> tuple[Any, np.ndarray[Any, Any]]:
    table, make = ESTIMATORS[name]
    features, target = TABLES[table]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(features, target), features


def exported(model: Any, **options: Any) -> TabularModel:
    return estimators.of_object(model, Source("model.skops", "skops", ()), ExportParams(**options))


def answers(exported: TabularModel, folder: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """ONNX Runtime's on the file."""
    path = exported.export(folder / "model.onnx", None).path
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_file_answers_as_the_estimator_does(name: str, tmp_path: Path) -> None:
    model, features = fitted(name)
    given = answers(exported(model), tmp_path, {"X": features.astype(np.float32)})
    if "label" in given:
        assert (given["label"].ravel() == model.predict(features)).mean() > 0.995
    else:
        expected = model.predict(features) if hasattr(model, "predict") else model.transform(features)
        np.testing.assert_allclose(
            given["variable"].ravel(), expected.ravel(), rtol=1e-4, atol=1e-4 * np.ptp(expected)
        )
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(given["probabilities"], model.predict_proba(features), atol=1e-4)
    elif "probabilities" in given:
        margin = model.decision_function(features)
        margin = margin if margin.ndim > 1 else np.stack([-margin, margin], 1)
        np.testing.assert_allclose(given["probabilities"], margin, atol=1e-4 * np.ptp(margin))


@pytest.mark.parametrize("name", ["HistGradientBoosting", "GradientBoosting", "RandomForestRegressor", "SVC"])
def test_float64_inputs_are_computed_with_as_the_estimator_does(name: str, tmp_path: Path) -> None:
    model, features = fitted(name)
    own = exported(model, float64=True)
    assert own.inputs[0].dtype == "float64"
    given = answers(own, tmp_path, {"X": features})
    if "label" in given:
        assert (given["label"] == model.predict(features)).all()
    else:
        np.testing.assert_allclose(given["variable"].ravel(), model.predict(features), rtol=1e-6)


# -- a table of texts, numbers and missing values -----------------------------------------------------------------


def people() -> tuple[pandas.DataFrame, np.ndarray[Any, Any]]:
    """The diabetes study's patients, with words where it has codes, and some cells lost."""
    found = datasets.load_diabetes(as_frame=True, scaled=False)
    table = found.data[["age", "sex", "bmi", "bp"]].copy()
    table["sex"] = table["sex"].map({1.0: "female", 2.0: "male"}).astype(object)
    table["weight"] = pandas.cut(table["bmi"], [0, 22, 27, 99], labels=["low", "medium", "high"]).astype(
        object
    )
    table.loc[::7, "bp"] = np.nan
    table.loc[3::11, "weight"] = np.nan
    return table, (found.target > 140).to_numpy()


def pipeline() -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    texts = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    columns = ColumnTransformer(
        [("numbers", numbers, ["age", "bmi", "bp"]), ("texts", texts, ["sex", "weight"])]
    )
    return Pipeline([("columns", columns), ("classifier", linear_model.LogisticRegression())])


@pytest.mark.parametrize("float64", [False, True])
def test_columns_of_several_types_are_inputs_of_their_own(float64: bool, tmp_path: Path) -> None:
    table, target = people()
    model = pipeline().fit(table, target)
    own = exported(model, float64=float64)
    number = np.float64 if float64 else np.float32
    feeds: dict[str, Any] = {name: table[[name]].to_numpy(number) for name in ("age", "bmi", "bp")}
    feeds |= {name: table[[name]].fillna("nan").to_numpy(object).copy() for name in ("sex", "weight")}
    feeds["sex"][5] = "never seen"
    table.loc[5, "sex"] = "never seen"
    given = answers(own, tmp_path, feeds)
    np.testing.assert_allclose(given["probabilities"], model.predict_proba(table), atol=1e-5)
    asked = {
        name: array.astype(np.float64) if array.dtype != object else array for name, array in feeds.items()
    }
    np.testing.assert_allclose(own.run(asked)["probabilities"], model.predict_proba(table), atol=1e-6)


def test_columns_keep_names_with_spaces(tmp_path: Path) -> None:
    table, target = people()
    table = table[["age", "sex", "bmi"]]
    table.columns = pandas.Index(["Age (years)", "Sex Category", "Sex_Category"])
    columns = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["Age (years)", "Sex_Category"]),
            ("texts", OneHotEncoder(), ["Sex Category"]),
        ]
    )
    model = make_pipeline(columns, linear_model.LogisticRegression()).fit(table, target)
    own = exported(model)
    assert {spec.name for spec in own.inputs} == set(table.columns)
    feeds: dict[str, Any] = {
        name: table[[name]].to_numpy(object if name == "Sex Category" else np.float32) for name in table
    }
    given = answers(own, tmp_path, feeds)
    np.testing.assert_allclose(given["probabilities"], model.predict_proba(table), atol=1e-5)


CHOICES: dict[str, tuple[Any, Any]] = {
    "names": (["bmi", "age"], ["bp", "s5"]),
    "a slice of names": (slice("age", "bmi"), slice("bp", "s2")),
    "a mask": ([True] + 9 * [False], 4 * [False] + 6 * [True]),
    "positions": ([3], [-1, 0]),
}


@pytest.mark.parametrize("chosen", CHOICES)
def test_columns_of_numbers_that_are_chosen_by_name_are_found_in_one_tensor(
    chosen: str, tmp_path: Path
) -> None:
    found = datasets.load_diabetes(as_frame=True, scaled=False)
    first, second = CHOICES[chosen]
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [("scaled", scaled, first), ("filled", SimpleImputer(), second)], remainder="passthrough"
    )
    model = Pipeline([("columns", columns), ("trees", ensemble.RandomForestRegressor(5, random_state=0))])
    model.fit(found.data, found.target)
    feeds = {"X": found.data.to_numpy(np.float64)}
    given = answers(exported(model, float64=True), tmp_path, feeds)
    np.testing.assert_allclose(given["variable"][:, 0], model.predict(found.data), rtol=1e-5)


def test_texts_are_drawn_from_the_categories() -> None:
    table, target = people()
    domains = exported(pipeline().fit(table, target)).domains
    assert {"female", "male"} <= set(domains["sex"].columns[0].codes)
    assert {"low", "medium", "high", "nan"} <= set(domains["weight"].columns[0].codes)
    assert domains["bp"].columns[0].missing


# -- drift --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a boosted model whose thresholds lie on scaled data, and the data."""
    folder = tmp_path_factory.mktemp("drifting")
    features, target = TABLES["breast_cancer"]()
    model = _scaled(ensemble.HistGradientBoostingClassifier(max_iter=5)).fit(features, target)
    joblib.dump(model, folder / "model.joblib")
    head = ",".join(f"f{place}" for place in range(features.shape[1]))
    np.savetxt(folder / "table.csv", features, "%.17g", ",", header=head, comments="")
    return folder


SENTENCES = [
    "Good morning to you",
    "a good evening",
    "the evening train is late",
    "you are late",
    "good, late train",
]


@pytest.mark.parametrize(
    "model",
    [
        # ONNX Runtime changes letters only where the machine has the locale.
        TfidfVectorizer(lowercase=False),
        CountVectorizer(ngram_range=(1, 2), lowercase=False),
        make_pipeline(TfidfVectorizer(lowercase=False), linear_model.LogisticRegression()),
    ],
    ids=["tfidf", "pairs of words", "classifier"],
)
def test_a_model_of_texts_is_proven_on_words_that_it_knows(model: Any, tmp_path: Path) -> None:
    joblib.dump(model.fit(SENTENCES, [0, 0, 1, 1, 1]), tmp_path / "texts.joblib")
    result = export_model(tmp_path / "texts.joblib", tmp_path / "texts.onnx", trust=True)
    assert result.report.verdict == "proven"
    session = onnxruntime.InferenceSession(result.path)
    feed = {session.get_inputs()[0].name: np.array([["Good late evening"], ["nothing"]], object)}
    given = session.run(None, feed)[-1]
    last = (
        model.predict_proba
        if hasattr(model, "predict_proba")
        else lambda texts: model.transform(texts).toarray()
    )
    np.testing.assert_allclose(given, last(["Good late evening", "nothing"]), atol=1e-5)


def test_rows_that_float32_puts_elsewhere_are_shown(drifting: Path, tmp_path: Path) -> None:
    with pytest.raises(NotProvenError, match="--float64") as failed:
        export_model(
            drifting / "model.joblib", tmp_path / "o.onnx", trust=True, inputs=drifting / "table.csv"
        )
    notes = failed.value.report.artifacts[0].notes
    model = joblib.load(drifting / "model.joblib")
    features, _ = TABLES["breast_cancer"]()
    assert any("rows of 569 differ" in note for note in notes)
    row = next(note for note in notes if note.startswith("row "))
    number = int(row.split()[1])
    assert f"{features[number, 0]!r}".removeprefix("np.float64(").rstrip(")") in row
    assert f"{model.predict_proba(features[[number]])[0, 0]:.7g}" in row
    assert not (tmp_path / "o.onnx").exists()


def test_float64_is_the_way_out(drifting: Path, tmp_path: Path) -> None:
    made = export_model(
        drifting / "model.joblib",
        tmp_path / "o.onnx",
        trust=True,
        inputs=drifting / "table.csv",
        float64=True,
    )
    assert made.report.verdict == "proven"


def test_zipmap_is_put_behind_what_was_proven(tmp_path: Path) -> None:
    features, target = TABLES["iris"]()
    model = naive_bayes.GaussianNB().fit(features, np.array(["setosa", "versicolor", "virginica"])[target])
    skops.io.dump(model, tmp_path / "model.skops")
    made = export_model(tmp_path / "model.skops", zipmap=True)
    session = onnxruntime.InferenceSession(made.path, providers=["CPUExecutionProvider"])
    label, dictionaries = session.run(None, {"X": features.astype(np.float32)})
    assert label[0] == "setosa"
    assert [[each[name] for name in model.classes_] for each in dictionaries] == pytest.approx(
        model.predict_proba(features), abs=1e-5
    )


def test_zipmap_of_a_regressor_is_refused(tmp_path: Path) -> None:
    skops.io.dump(fitted("Ridge")[0], tmp_path / "model.skops")
    with pytest.raises(UsageError, match="--zipmap has no effect"):
        export_model(tmp_path / "model.skops", zipmap=True)


# -- bad input ----------------------------------------------------------------------------------------------------


class Touching:
    """A pickle of this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_not_read_without_trust(tmp_path: Path) -> None:
    file, touched = tmp_path / "model.pkl", tmp_path / "touched"
    file.write_bytes(pickle.dumps(Touching(touched)))
    with pytest.raises(InputError, match="--trust"):
        from_pickle(Source.of(file), ExportParams())
    assert not touched.exists()
    with pytest.raises(InputError, match="--trust"):
        export_model(file, tmp_path / "o.onnx")
    assert not touched.exists()


def test_a_pickle_of_a_module_that_is_not_here_names_it(tmp_path: Path) -> None:
    file = tmp_path / "model.pkl"
    file.write_bytes(b"csurely_absent\nModel\n.")
    with pytest.raises(MissingDependencyError, match="surely_absent"):
        from_pickle(Source.of(file), ExportParams(trust=True))


def test_a_pickle_of_an_older_scikit_learn_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"csklearn.svm.classes\nLinearSVC\n.")
    with pytest.raises(MissingDependencyError) as refused:
        export_model(path, trust=True)
    assert "needs the module sklearn.svm.classes, which the installed sklearn does not have" in str(
        refused.value
    )
    assert "in an environment with that version of sklearn" in str(refused.value)


def test_a_damaged_pickle_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "model.joblib"
    file.write_bytes(b"no pickle")
    with pytest.raises(InputError, match="cannot be read"):
        from_pickle(Source.of(file), ExportParams(trust=True))


def test_types_that_skops_does_not_know_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "model.skops"
    skops.io.dump(fitted("ExtraTrees")[0], file)
    with pytest.raises(InputError, match=r"sklearn\.tree\._tree\.Tree.*--trust"):
        from_skops(Source.of(file), ExportParams())
    assert from_skops(Source.of(file), ExportParams(trust=True)).kind == "sklearn"


def test_a_file_that_is_no_skops_file_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "model.skops"
    file.write_bytes(b"PK no zip")
    with pytest.raises(InputError, match="skops"):
        from_skops(Source.of(file), ExportParams())


def test_another_version_of_scikit_learn_is_noted(tmp_path: Path) -> None:
    model, _ = fitted("GaussianNB")
    state = model.__getstate__() | {"_sklearn_version": "1.2.3"}
    file = tmp_path / "model.pkl"
    model.__class__.__getstate__, kept = lambda self: state, model.__class__.__getstate__
    try:
        file.write_bytes(pickle.dumps(model))
    finally:
        model.__class__.__getstate__ = kept
    read: Any = from_pickle(Source.of(file), ExportParams(trust=True))
    assert any("1.2.3" in note for note in read.notes)


def test_an_estimator_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(InputError, match="LogisticRegression that is not fitted"):
        exported(linear_model.LogisticRegression())


def test_an_estimator_without_a_converter_is_named_beside_those_that_have_one() -> None:
    features, target = TABLES["iris"]()
    with pytest.raises(CannotConvertError, match=r"DummyClassifier.*LogisticRegression"):
        exported(DummyClassifier().fit(features, target))


def test_categories_that_the_converter_would_take_for_numbers_are_refused() -> None:
    features, target = TABLES["iris"]()
    features = np.round(features)
    model = ensemble.HistGradientBoostingClassifier(max_iter=5, categorical_features=[2, 3])
    with pytest.raises(CannotConvertError, match="categories"):
        exported(model.fit(features, target))


def test_another_number_of_columns_is_refused() -> None:
    model, _ = fitted("GaussianNB")
    with pytest.raises(UsageError, match=r"7 columns: .* fitted on 4"):
        exported(model, input={"X": "1,7:float32"})


def test_an_unknown_column_is_refused() -> None:
    table, target = people()
    with pytest.raises(UsageError, match=r"'height'.*age, sex, bmi, bp, weight"):
        exported(pipeline().fit(table, target), input={"age": "1,1", "height": "1,1"})


# -- through the command, in a fresh process ----------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*ESTIMATORS, "a pipeline of columns"])
def test_the_command_proves_it_on_a_real_table(name: str, tmp_path: Path) -> None:
    if name in ESTIMATORS:
        model, features = fitted(name)
        np.save(tmp_path / "table.npy", features)
        inputs = "table.npy"
    else:
        table, target = people()
        model, inputs = pipeline().fit(table, target), "table.csv"
        table.assign(target=target).to_csv(tmp_path / inputs, index=False)
    skops.io.dump(model, tmp_path / "model.skops")
    done = subprocess.run(
        [sys.executable, "-m", "onnxport", "export", "model.skops", "--trust", "--inputs", inputs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proven" in done.stdout
