"""What the commands do, callable from Python: settings, preparation, run folders, runs, exchange, many runs."""
