"""O(n) mass-matrix solvers behind one protocol and one registry."""
