"""Weights in fewer bits: found (discovery.py), rounded (rtn.py, hqq.py, gptq.py) and written into the graph."""
