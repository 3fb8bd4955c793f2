"""Find where two model files begin to differ: which ONNX node computes something else in the candidate.

taps.py         the values that both files can show, and runs that fetch some of them
local_error.py  each node of the reference run on the candidate's own values: is the node wrong, or its inputs?
search.py       bisection over the graph, where not everything fits into memory
diagnosis.py    from a verdict to the name of a node
repro.py        the folder with the node at fault, its inputs and both answers
"""
