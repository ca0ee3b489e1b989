"""Where OpenMM is driven: forces, integrators, simulations, reporters, checkpoints."""
