namespace freestone_test {
extern const bool is_hardened_library;
const bool is_hardened_library = true;
}  // namespace freestone_test
