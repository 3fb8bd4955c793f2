"""`python -m onnxport`, the same as the `onnxport` command."""

from onnxport.cli import main

if __name__ == "__main__":
    main()
