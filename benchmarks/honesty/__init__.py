"""Are the intervals of sweeps honest? Simulated sweeps on real predictions, and real sweeps."""
