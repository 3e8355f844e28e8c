"""Types, errors, paths and units that every room speaks in."""
