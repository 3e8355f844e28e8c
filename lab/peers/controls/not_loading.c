/* Exports no malloc: the dynamic linker loads it without a word, and the program stays on its own allocator. */
__attribute__((visibility("default"))) int freestone_control_not_loading(void) { return 1; }
