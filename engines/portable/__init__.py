"""The portable ONNX: written by export.py, described by graph.py, read back by reader.py."""
