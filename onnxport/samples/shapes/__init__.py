"""Shape inference over many candidate sizes at once, which solves for the open dimensions of a model.

An open dimension is a free symbol until an operator demands that it equals something. The symbols that remain get a
vector of candidates: one pass over the graph computes the sizes of every value for all candidates, and which of them
each operator accepts.
"""
