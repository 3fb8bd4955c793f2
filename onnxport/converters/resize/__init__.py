"""Resize, whatever the target: its node and its sampling."""
