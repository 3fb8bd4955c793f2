"""Sizes, axes and indices, known now or computed in the program; values of more axes than MIL holds."""
