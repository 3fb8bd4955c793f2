"""Resizing, whatever the target: what a node says, and how its samples lie."""
