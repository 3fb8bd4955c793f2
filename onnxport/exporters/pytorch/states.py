"""Buffers that a forward changes: restored, so that every call starts alike."""

from __future__ import annotations

import torch


class BufferStates:
    """The buffers of a module before any run; `learn` comes behind the first call and keeps those that it changed."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._before = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}

    def learn(self) -> None:
        now = dict(self._module.named_buffers())
        self._before = {
            name: buffer
            for name, buffer in self._before.items()
            if name not in now or not torch.equal(buffer, now[name])
        }
        self.restore()

    @property
    def notes(self) -> list[str]:
        if not self._before:
            return []
        return [
            f"forward changes {', '.join(self._before)} from call to call; the ONNX model starts every call with what "
            "they were at the export: take them as inputs and give them back to keep a state"
        ]

    def restore(self) -> None:
        for name, buffer in self._before.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self._module.get_submodule(owner), leaf, buffer.clone())
