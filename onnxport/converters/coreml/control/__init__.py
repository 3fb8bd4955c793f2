"""Parts of If and Loop: inputs and results of MIL blocks, rows that a loop collects."""
