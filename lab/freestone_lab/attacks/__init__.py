"""The attack suite: starts, judges and counts its cases for each allocator."""
