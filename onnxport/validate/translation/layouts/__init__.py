"""Graphs in which the order of axes no longer shows: transposes and views move behind everything that allows it.

Converters choose layouts: channels last, heads before tokens, axes of size 1 dropped. Here each value is a base and a
view of it: axis i of the value is axis `axes[i]` of the base, or one of size 1 that the base has not (None); axes of
the base that nothing names have size 1. Transpose, Squeeze and their like change the view alone, element-wise operators
compute on bases, and what needs one order gets a Transpose before it. Two graphs that differ in layout have the same
bases then. Sizes are those of one set of inputs.
"""
