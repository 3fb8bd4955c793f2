"""Weights in fewer bits, as the user asks for or as the source stores them."""
