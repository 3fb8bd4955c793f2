"""Defer or prevent imports of modules that our libraries load and we never call.

onnx-ir computes with symbolic dimensions through SymPy, whose import takes longer than all others together (1.5 of 2.3
s on a slow machine). The standard library's LazyLoader imports it at its first use. So it does what `import onnx` and
`import onnx_ir` load beside what we call, a twelfth of their time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # true for type checkers; every command imports this file first, typing would be slow
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

_DEFERRED = frozenset(
    {
        *("sympy", "onnx_ir._symbolic_shapes", "onnx_ir.schemas"),
        *(
            f"onnx.{name}"
            for name in ("compose", "gen_proto", "parser", "printer", "utils", "version_converter")
        ),
        *("google.protobuf.json_format", "google.protobuf.text_format"),
    }
)


class _LazyFinder:
    """A finder for sys.meta_path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def defer() -> None:
    """Make the modules of _DEFERRED load at their first use."""
    if not any(isinstance(finder, _LazyFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyFinder())


@contextlib.contextmanager
def hidden(names: Iterable[str]) -> Iterator[None]:
    """Make imports of `names` fail in the block, except of modules that are loaded already.

    For libraries that import every framework that is installed: torch alone takes 1.4 s.
    """
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)
