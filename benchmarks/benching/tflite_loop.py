"""Time LiteRT as a user does: `python tflite_loop.py MODEL FEEDS.npz THREADS RUNS WARMUP`.

Prints the milliseconds of the median run and of the fastest one.
"""

import statistics
import sys
import time

import numpy as np
from ai_edge_litert.interpreter import Interpreter

model, feeds, threads, runs, warmup = sys.argv[1:]
inputs = {int(number): array for number, array in np.load(feeds).items()}
interpreter = Interpreter(model, num_threads=int(threads))
for number, array in inputs.items():
    interpreter.resize_tensor_input(number, array.shape)
interpreter.allocate_tensors()
for number, array in inputs.items():
    interpreter.set_tensor(number, array)
for _ in range(int(warmup)):
    interpreter.invoke()
times = []
for _ in range(int(runs)):
    started = time.perf_counter()
    interpreter.invoke()
    times.append(time.perf_counter() - started)
print(1000 * statistics.median(times), 1000 * min(times))
