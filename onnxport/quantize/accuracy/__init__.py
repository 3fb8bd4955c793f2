"""What makes integers more accurate at no cost when the model runs: one file a method, docs/quantize.md on each."""
