"""PyTorch: modules, exported programs and TorchScript, through torch.onnx.export.

`loading` takes what the user named, `weights` fills it, `examples` says what it is called with, `capturing` has
torch.export make a program of it (with `dynamic` sizes and `recurrence` kept whole), `writing` makes that ONNX,
`answers` takes results apart, `tracing` is the older exporter, and `failures` says in one sentence what torch says in
fifty.
"""

from onnxport.exporters.pytorch.loader import load, of_object

__all__ = ["load", "of_object"]
