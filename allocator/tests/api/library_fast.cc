namespace freestone_test {
extern const bool is_hardened_library;
const bool is_hardened_library = false;
}  // namespace freestone_test
