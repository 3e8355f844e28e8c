"""One module per command; the table COMMANDS in options.py names its function."""
