"""Structures and trajectories: files in, plain tables out, and back."""
