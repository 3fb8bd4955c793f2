"""The first pipeline.yaml of a project, and the workflow that runs it: what `onnxport init` writes.

model_summary.py     what is known of a model without running it
target_trials.py      which targets take it
samples.py     whether a folder of samples fits it
hosts.py       which CI the project has, and where its root is
writing.py     the files, from the templates beside it
project.py   one after the other
"""
