"""Molecules as trees of rigid bodies: chemistry, rigid units, D-H frames, the tree model and its kinematics."""
