"""What a screen reader finds on a page of a report."""

from __future__ import annotations

import re

import pytest

from tests.reports.test_print import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_content_is_a_landmark_and_each_column_has_a_name(page: str) -> None:
    text = PAGES[page]()
    assert text.count("<main>") == text.count("</main>") == 1
    assert text.index("</header>") < text.index("<main>") < text.index("<footer")
    assert re.findall(r"<th[^>]*></th>", text.replace('<th aria-label="share"></th>', "")) == []
