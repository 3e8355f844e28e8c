"""One process started, watched and proven to run under the allocator asked for."""
