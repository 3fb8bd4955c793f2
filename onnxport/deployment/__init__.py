"""Where a model runs: which runtimes take it, wholly or in part, and which change would make them take more.

An installed runtime is probed. Others are estimated by a data file each (data/).
"""
