"""What the machine says of itself: memory, later power and temperature. Absent is not 0."""
