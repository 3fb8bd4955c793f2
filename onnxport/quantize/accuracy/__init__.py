"""Methods that make integers more accurate at no cost at run time: one file each (docs/guide/quantize.md)."""
