"""The `cpu` target: passes over the portable graph, the step list, the weight file."""
