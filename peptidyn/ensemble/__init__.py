"""What constrained dynamics samples: the Fixman metric, momenta, weights."""
