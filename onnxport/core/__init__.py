"""Errors, child processes, plugins, user code, and the syntax of names and sizes."""
