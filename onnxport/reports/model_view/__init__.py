"""Model files for viewers: Netron, and files that Model Explorer opens; findings lie over the nodes."""
