"""The first pipeline.yaml of a project, and the workflow that runs it: what `onnxport init` writes.

looking.py     what is known of a model without running it
trying.py      which targets take it
samples.py     whether a folder of samples fits it
hosts.py       which CI the project has, and where its root is
writing.py     the files, from the templates beside it
beginning.py   one after the other
"""
