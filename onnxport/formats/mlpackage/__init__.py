"""The `.mlpackage` of a Core ML program, read into plain objects."""
