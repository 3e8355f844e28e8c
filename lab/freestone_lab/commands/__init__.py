"""One module per sub-command; each offers `register(app)`."""
