"""From runs and structures to tables, plots and reports."""
