"""Steppers on soft coordinates and momenta: drift, kick, thermostat, and their compositions. No OpenMM here."""
