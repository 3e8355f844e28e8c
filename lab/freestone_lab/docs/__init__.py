"""The repository's documents that are made from code and stored results."""
