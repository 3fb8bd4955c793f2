"""Rewritings of the domain ai.onnx.ml (scikit-learn, XGBoost, LightGBM); importing this package registers them."""

from onnxport.optimizers.rewrites.ml import linear, preprocessing, support_vectors, trees  # noqa: F401
