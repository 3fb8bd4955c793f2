"""docs/reference/metrics.md says of every metric what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.validate.custom_metrics import Averages, load
from onnxport.validate.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def test_the_pages_table_is_the_codes() -> None:
    rows = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == [
        [f"`{each.name}`", each.unit, each.better, each.formula.replace("|", "\\|"), each.applies]
        for each in METRICS.values()
    ]


def test_the_pages_own_metric_works(tmp_path: Path, monkeypatch: Any) -> None:
    (example,) = re.findall(r"    # mypkg/metrics.py\n(.*?)\n\n    onnxport", PAGE, re.DOTALL)
    (tmp_path / "page_example.py").write_text(re.sub(r"^    ", "", example, flags=re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    averages = Averages(load(["page_example:char_error_rate"]))
    scores = np.eye(4)
    averages.add("set 1", {"scores": scores}, {"scores": scores[[0, 1, 2, 2]]})
    (figure,) = averages.figures
    assert (figure.metric, figure.value, figure.unit) == ("char_error_rate", 25, "%")
