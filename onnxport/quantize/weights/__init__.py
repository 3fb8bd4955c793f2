"""Weights in fewer bits.

discovery.py says which and along which axis; rtn.py, hqq.py and gptq.py choose the numbers (encoding.py);
dequantize_linear.py, nbits.py and tables.py put them into the graph; weight_only.py conducts.
"""
