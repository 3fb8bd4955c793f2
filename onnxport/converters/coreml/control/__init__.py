"""What If and Loop share: the borders of MIL blocks, and what a loop collects."""
