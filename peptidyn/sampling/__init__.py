"""Monte Carlo moves, samplers that mix them, replica exchange and ensembles, on one machine or a cluster."""
