"""Reports on paper: nothing is cut at the edge, and nothing is dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from onnxport.reports.bench import html as bench
from onnxport.reports.deployment import html as deployment
from onnxport.reports.pipeline import html as pipeline
from onnxport.reports.profile import html as profile
from tests.reports import chromium
from tests.reports.bench.handmade import REPORTS as BENCHES
from tests.reports.deployment.handmade import REPORTS as DEPLOYMENTS
from tests.reports.pipeline.handmade import crowd, mixed
from tests.reports.profile.handmade import REPORTS as PROFILES

STYLES = sorted((Path(__file__).parents[2] / "onnxport" / "reports").rglob("*.css"))
PAGES: Mapping[str, Callable[[], str]] = {
    "mixed": lambda: pipeline.view(mixed()),
    "crowd": lambda: pipeline.view(crowd()),
    "bench": lambda: bench.view(BENCHES["whole"]()),
    "profile": lambda: profile.view(PROFILES["whole"]()),
    "deployment": lambda: deployment.view(DEPLOYMENTS["whole"]()),
}
_PAPER = 703  # pixels of A4 between margins of 12 mm


def test_all_fits_on_paper(tmp_path: Path) -> None:
    """The rules for paper on a screen of its width; what may scroll on a screen has no exception there."""
    for name, make in PAGES.items():
        # The policy knows the style's hash.
        page = re.sub(r"<meta http-equiv=.Content-Security-Policy[^>]*>", "", make())
        page = page.replace("@media print", "@media all").replace("scroll", "paper")
        (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
    with chromium.serving(tmp_path) as site:
        visit = chromium.probe(site, list(PAGES), _PAPER)
    for page, found in chromium.measured(visit).items():
        assert found["scroll"] == _PAPER, page
        # Labels of a flame's bars end where their bars do.
        assert [each for each in found["wide"] if not each.startswith(("svg.null", "text."))] == [], page


@pytest.mark.parametrize("style", STYLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_screens_are_dark(style: Path) -> None:
    found = re.findall(r"@media ([^{]*prefers-color-scheme: dark[^{]*)\{", style.read_text(encoding="utf-8"))
    assert all("screen and" in each for each in found)
