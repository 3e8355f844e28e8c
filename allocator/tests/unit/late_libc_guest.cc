extern "C" __attribute__((visibility("default"))) int freestone_guest_function() { return 1; }
