"""The forms of the run of a single command, such as convert or validate."""
