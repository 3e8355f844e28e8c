"""Which allocators this machine has, and how each behaves at its border."""
