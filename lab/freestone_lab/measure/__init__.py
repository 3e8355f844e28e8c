"""Starts and watches one process, and proves that it runs under the wanted allocator."""
