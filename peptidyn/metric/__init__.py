"""What the kinetic metric does to sampling: Fixman potential and torque, weights, maps."""
