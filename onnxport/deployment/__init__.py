"""Which runtimes take a model, wholly or in part, and what one change would make more of them take it.

A runtime that is installed is asked. What others take is told by a data file each (data/): the answer is an estimate.
"""
