"""Traces of allocation calls: .fst files (docs/TRACE.md), and what is computed from them."""
