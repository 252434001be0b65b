"""Model files, read and checked. Owns: formats, architectures. Needs: numpy, gguf. Never: tiers, graphs, engines."""
