"""What lowering to any target shares: a graph that passes rewrite, and the passes that every target begins with."""
