"""What every room needs, once: atoms, residues, geometry, units, errors, files."""
