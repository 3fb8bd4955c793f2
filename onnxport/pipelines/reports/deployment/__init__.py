"""The views of a deployment report, in modules of the same names as those of the other reports."""
