"""The native extension. Owns: loading it. Needs: contract. Never: what it computes."""

from __future__ import annotations

from typing import Any

from edge.errors import ExecutorError


def load_core() -> Any:
    """The extension module `edge._core`; ExecutorError with the mending command where it is missing, or of another contract or
    interface."""
    from edge import contract

    try:
        from edge import _core
    except ImportError as error:
        raise ExecutorError(f"edge._core: the native core cannot be loaded ({error}). Install it: ./install.sh") from None
    if contract.VERSION != _core.CONTRACT_VERSION:
        ours, theirs = contract.VERSION, _core.CONTRACT_VERSION
        raise ExecutorError(f"edge._core: built for contract {theirs}, this runtime has {ours}. Install again: ./install.sh")
    if (found := getattr(_core, "INTERFACE", 0)) != contract.INTERFACE:  # 0: older than these numbers
        fact = f"{_core.__file__}: has the interface {found}, this Python code calls {contract.INTERFACE}"
        raise ExecutorError(f"{fact}. Compile it again: ./install.sh, or pip install . in the checkout")
    return _core
