"""Einsum's equations, which every target reads alike."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letter of each axis of each operand, and of the result, an ellipsis written out.

    Args:
        ranks: how many axes each operand has.
    """
    equation = equation.replace(" ", "")
    left, arrow, result = equation.partition("->")
    texts = left.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    hidden = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    widest = max(hidden)
    operands = [
        text.replace("...", "".join(free[widest - count : widest]))
        for text, count in zip(texts, hidden, strict=True)
    ]
    if not arrow:
        # Implicit: the ellipsis, then the letters that occur once, in alphabetical order.
        result = "..." + "".join(
            sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        )
    return operands, result.replace("...", "".join(free[:widest]))
