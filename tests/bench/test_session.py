"""Subjects run in turns in their own processes; one that fails leaves with the reason, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxport.bench import session as session_module
from onnxport.bench.report import Settings
from onnxport.bench.session import Session, Subject, rounds
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from tests.bench.waking import SECONDS
from tests.validate.tflite_files import CHAIN, chain_manifest, write

DIGITS = Path("fixtures/digits/digits.onnx")
ORT = Settings(runtime="ort", provider="cpu", threads=1, level="all")


def feeding(specs: Sequence[TensorSpec]) -> Feeds:
    random = np.random.default_rng(0)
    return {
        spec.name: random.random([dim if isinstance(dim, int) else 1 for dim in spec.shape]).astype(
            spec.dtype
        )
        for spec in specs
    }


def subject(path: Path = DIGITS, settings: Settings = ORT) -> Subject:
    return Subject(path, settings, feeding)


def children() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


def test_each_has_a_turn_in_every_round_and_answers_as_the_runtime_does() -> None:
    with Session([subject(), subject(settings=ORT.model_copy(update={"level": "disable"}))]) as session:
        session.load()
        session.feed()
        session.warm_up(runs=3, least=4)
        session.run(until=rounds(3))
        for trial in session.trials:
            assert trial.failure is None
            assert len(trial.turns) == 3
            assert all(len(turn.times) == trial.runs >= 4 and min(turn.times) > 0 for turn in trial.turns)
            assert 0 < trial.bare < trial.imported < trial.loaded <= trial.peak
            expected = onnxruntime.InferenceSession(DIGITS).run(None, dict(trial.feeds))
            np.testing.assert_allclose(
                session.answers(trial, trial.feeds)["logits"], expected[0], rtol=1e-5, atol=1e-5
            )


def test_first_second_and_warm_runs_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_TARGET", "tests.bench.waking:Runner")
    with Session([subject()]) as session:
        session.load()
        session.feed()
        session.warm_up(runs=1)
        session.run(until=rounds(1))
        (trial,) = session.trials
    assert trial.failure is None
    assert trial.second is not None
    for found, seconds in zip((trial.first, trial.second, min(trial.times)), SECONDS, strict=True):
        assert seconds <= found < 2 * seconds + 0.01


def test_a_missing_provider_a_refused_model_and_a_killed_process_are_theirs_alone(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    absent = ORT.model_copy(update={"provider": "qnn"})
    trials = [subject(broken), subject(settings=absent), subject()]
    with Session([*trials, subject()]) as session:
        before = set(children())
        session.load()
        session.feed()
        assert [trial.failure.status if trial.failure else "" for trial in session.trials] == [
            "refused",
            "not here",
            "",
            "",
        ]
        os.kill(sorted(set(children()) - before)[0], signal.SIGKILL)
        session.warm_up(1)
        session.run(until=rounds(1))
        statuses = [trial.failure.status if trial.failure else "" for trial in session.trials]
        assert statuses == ["refused", "not here", "crashed", ""]
        missing = session.trials[1].failure
        assert missing is not None
        assert "onnxruntime-qnn" in missing.error.fix


def test_one_that_takes_too_long_hangs_for_itself_and_nothing_is_left() -> None:
    with Session([subject()], timeout=0.001) as session:  # no machine imports ONNX Runtime in that
        session.load()
        failure = session.trials[0].failure
        assert failure is not None
        assert failure.status == "hung"
        assert failure.error.exit_code == 6
        session.run(until=rounds(1))
        folder = Path(session._folder.name)
    assert not folder.exists()


@pytest.mark.parametrize("provider", ["xnnpack", "cpu"])
def test_a_tflite_file_of_ours_is_fed_and_answers_in_names_types_and_axes_of_its_source(
    provider: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "chain.tflite", CHAIN, "xn", "ym", chain_manifest((1, 0)))
    images = np.random.default_rng(1).random((3, 5)).astype(np.float32)  # axes (1, 0) of [batch, 3]
    feeds = {"images,1:0": images, "count": np.array([40], np.int64)}
    settings = Settings(runtime="litert", provider=provider, threads=1)
    with Session([Subject(path, settings, lambda specs: feeds)]) as session:
        session.load()
        session.feed()
        session.run(until=rounds(1))
        (trial,) = session.trials
        assert trial.failure is None
        answers = session.answers(trial, trial.feeds)
    np.testing.assert_allclose(answers["answers,1:0"], np.exp(images) + np.array([[1], [2], [3]]), rtol=1e-5)
    assert answers["counted"].dtype == np.int64
    assert answers["counted"].tolist() == [42]


LEAN = """
import sys
from onnxport.bench.worker import Runner
runner = Runner()
runner.require({runtime!r})
runner.load({path!r}, {{"threads": 1}})
print(*sorted({{name.partition(".")[0] for name in sys.modules}} - {{*sys.stdlib_module_names}}))
"""


@pytest.mark.parametrize(
    ("runtime", "allowed"),
    [("ort", {"onnxruntime"}), ("litert", {"ai_edge_litert", "flatbuffers"})],
)
def test_the_measuring_process_has_numpy_and_its_runtime_and_nothing_else(
    runtime: str, allowed: set[str], tmp_path: Path
) -> None:
    """Bytes of other libraries would be told as the runtime's."""
    path = DIGITS if runtime == "ort" else write(tmp_path / "c.tflite", CHAIN, "xn", "ym")
    program = LEAN.format(runtime=runtime, path=str(path))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in found.stdout.split() if not name.startswith("_")}
    assert loaded - {"site", "sitecustomize", "usercustomize"} <= {"onnxport", "numpy"} | allowed
