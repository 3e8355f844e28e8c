"""How an experiment is planned, scheduled and run."""
