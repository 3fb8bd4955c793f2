"""Weights in fewer bits: what the user asks for and what the source stores."""
