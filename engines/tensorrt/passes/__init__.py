"""Rewrites of a portable graph for TensorRT, one a file. engines/tensorrt/lower.py says which reader takes which."""
