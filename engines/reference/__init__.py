"""Plain implementations that engines are compared with. Owns: arithmetic in NumPy. Needs: numpy. Never: speed."""
