"""Time ONNX Runtime as a user does: `python ort_loop.py MODEL FEEDS.npz THREADS RUNS WARMUP`.

Prints the milliseconds of the median run and of the fastest one.
"""

import statistics
import sys
import time

import numpy as np
import onnxruntime

model, feeds, threads, runs, warmup = sys.argv[1:]
inputs = dict(np.load(feeds))
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
for _ in range(int(warmup)):
    session.run(None, inputs)
times = []
for _ in range(int(runs)):
    started = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - started)
print(1000 * statistics.median(times), 1000 * min(times))
