"""Resize: how an axis is sampled, with sizes known at conversion or at run time only."""
