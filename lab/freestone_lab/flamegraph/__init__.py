"""Heap profiles: read them, resolve their addresses, and show them as one self-contained page."""
