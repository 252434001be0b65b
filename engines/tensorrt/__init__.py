"""Engines that TensorRT and TensorRT-RTX build: graphs for their parsers, plans from a process of their own."""
