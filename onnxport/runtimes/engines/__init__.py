"""Third-party engines that run ONNX files by a reader or a converter of their own, each imported when it is used."""
