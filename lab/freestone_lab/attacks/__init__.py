"""The attack suite: cases started, judged and counted per allocator."""
