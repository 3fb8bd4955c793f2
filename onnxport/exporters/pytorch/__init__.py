"""PyTorch: modules, exported programs and TorchScript, through torch.onnx.export."""

from onnxport.exporters.pytorch.loader import load, of_object

__all__ = ["load", "of_object"]
