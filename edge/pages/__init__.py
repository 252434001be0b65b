"""KV memory by number. Owns: slabs, extents, page tables, their sizes. Needs: contract, spec. Never: tensors, requests."""
