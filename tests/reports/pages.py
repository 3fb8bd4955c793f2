"""The text, elements and links of an HTML page."""

from __future__ import annotations

import html.parser
from typing import Any


class Page(html.parser.HTMLParser):
    """A parsed page; `places` are the targets inside it that its links can lead to."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.links, self.places = set[str](), set[str]()
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links |= {values["href"]} if tag == "a" else set()
        self.places |= {f"#{values['id']}"} if "id" in values else set()

    def handle_data(self, data: str) -> None:
        self.text += data
