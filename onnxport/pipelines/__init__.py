"""Stages, the runner that every command uses, and the views of its report."""
