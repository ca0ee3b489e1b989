"""The packed tree and its compiled passes; the only place that knows numba's internals."""
