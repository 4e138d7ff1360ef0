"""ONNX: the Attention operator of opsets 23, 24 and 25 by its own names, and models exported to it."""

from headwise.compat.onnx.export import export
from headwise.compat.onnx.operator import Outputs, attention

__all__ = ["Outputs", "attention", "export"]
