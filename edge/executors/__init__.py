"""What runs an engine. Owns: bytes and their layout. Needs: a package. Never: requests, text, order."""
