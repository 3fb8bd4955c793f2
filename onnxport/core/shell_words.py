"""Commands and options in messages, quoted for a shell: names in them come from files of strangers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

_ASCII = 128


def quote(text: object) -> str:
    """Return `text` as one word of a POSIX shell, without characters that a terminal obeys.

    A word that holds such characters is in the form $'...' of bash, zsh and POSIX 2024, where they are escapes.
    """
    word = str(text)
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escape, word))}'"


def join(words: Iterable[object]) -> str:
    """Return a command line."""
    return " ".join(map(quote, words))


def quote_option(name: str, *values: object) -> str:
    """Return an option once for each of its values, as in --shape x=1,3 --shape 'y y=2'."""
    return " ".join(f"{name} {quote(value)}" for value in values)


def _escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    number = ord(character)
    if number < _ASCII:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
