"""Prefixes baked into a package. Owns: their files. Needs: pages, package. Never: an engine's steps."""
