"""Recurrent layers, whatever the target: what their nodes say, and what one step of them computes."""
