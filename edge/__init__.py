"""The runtime of EdgeZero: loads a package, keeps a memory budget, answers. Imports neither engines nor calibration."""

__version__ = "0.1.0"
