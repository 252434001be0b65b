"""How fast an engine is, and how close to what the machine allows. Owns: work, limits, measurements, comparisons.
Needs: runtime, the native core. Never: terminals; the command line prints."""
