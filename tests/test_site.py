"""The documentation as a site: it builds with every link checked, fits a phone and a desk, and stays light."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reports import chromium

ROOT = Path(__file__).parents[1]
PAGES = (
    "index",
    "start",
    "notebooks/convert-and-prove",
    "notebooks/int8-within-a-budget",
    "questions",
    "tutorials/web",
    "reference/python",
    "reference/pipeline-yaml",
)
_MOST = (
    500_000  # bytes of a page with all that it loads, the search's index too, packed as web servers send them
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Site]:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr  # a broken link or anchor is 1
    with chromium.serving(folder) as served:
        yield served


@pytest.mark.parametrize("width", [400, 1400])
def test_no_page_is_wider_than_the_window_or_complains(site: chromium.Site, width: int) -> None:
    visit = chromium.probe(site, PAGES, width)
    assert visit.console == []
    found = chromium.measured(visit)
    assert {page: found[page]["scroll"] for page in PAGES} == {page: found[page]["shown"] for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_light_and_asks_only_for_its_own_files(site: chromium.Site, page: str) -> None:
    site.asked.clear()
    visit = chromium.dom(f"{site.address}/{page}.html")
    assert visit.console == []
    files = {site.folder / path.partition("?")[0].lstrip("/") for path in site.asked}
    assert all(file.is_file() for file in files), files
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < _MOST


def test_what_a_screen_reader_finds_has_a_name(site: chromium.Site) -> None:
    for page in (*PAGES, "guide/coreml"):
        text = (site.folder / f"{page}.html").read_text(encoding="utf-8")
        assert 'role="dialog" aria-label="Search"' in text, page
        assert not re.search(r"<th[^>]*></th>", text), page


def test_the_keys_of_a_pipeline_are_those_that_it_takes(site: chromium.Site) -> None:
    text = (site.folder / "reference" / "pipeline-yaml.html").read_text(encoding="utf-8")
    for key in ("max_size", "minimum_target", "calib", "int16x8"):
        assert f"<code>{key}</code>" in text


def test_every_option_of_a_function_is_described(site: chromium.Site) -> None:
    text = (site.folder / "reference" / "python.html").read_text(encoding="utf-8")
    _, _, options = text.partition('id="options-of-validate_model-assert_equivalent"')
    found = dict(re.findall(r"<td><code>(\w+)</code></td>\s*<td>(.*?)</td>", options.partition("<h3")[0]))
    assert {"budget", "shape", "inputs", "preprocess"} <= set(found)
    assert all(found.values())
    assert "&lt;stem&gt;_&lt;precision&gt;.onnx" in text
