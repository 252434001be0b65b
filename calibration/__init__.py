"""What precision costs and who gets it. Owns: schemes, tiers, packing. Needs: numpy. Never: model files, engines."""
