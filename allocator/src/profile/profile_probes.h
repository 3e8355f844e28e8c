// Room 14, profile: static probe points for bpftrace, perf, SystemTap and gdb (the notes that sys/sdt.h writes). Each
// is one nop, and only sampled events reach it:
//   bpftrace -e 'usdt:libfreestone.so:freestone:sample_allocate { @[ustack] = sum(arg1); }'
#pragma once

// clang-format off
#define FREESTONE_PROBE(name, format, ...)                                            \
  asm volatile(                                                                       \
      "990: nop\n"                                                                    \
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                   \
      ".balign 4\n .4byte 992f-991f, 994f-993f, 3\n"                                  \
      "991: .asciz \"stapsdt\"\n"                                                     \
      "992: .balign 4\n"                                                              \
      "993: .8byte 990b\n .8byte _.stapsdt.base\n .8byte 0\n"                         \
      ".asciz \"freestone\"\n .asciz \"" name "\"\n .asciz \"" format "\"\n"          \
      "994: .balign 4\n"                                                              \
      ".popsection\n"                                                                 \
      ".ifndef _.stapsdt.base\n"                                                      \
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"         \
      ".weak _.stapsdt.base\n .hidden _.stapsdt.base\n"                               \
      "_.stapsdt.base: .space 1\n .size _.stapsdt.base, 1\n"                          \
      ".popsection\n"                                                                 \
      ".endif\n"                                                                      \
      :: __VA_ARGS__)
// Arguments are whole registers, as the note says (8@); clang refuses another size on aarch64.
#define FREESTONE_PROBE_2(name, a, b)                                                 \
  static_assert(sizeof(a) == 8 && sizeof(b) == 8);                                    \
  FREESTONE_PROBE(name, "8@%0 8@%1", "r"(a), "r"(b))
#define FREESTONE_PROBE_3(name, a, b, c)                                              \
  static_assert(sizeof(a) == 8 && sizeof(b) == 8 && sizeof(c) == 8);                  \
  FREESTONE_PROBE(name, "8@%0 8@%1 8@%2", "r"(a), "r"(b), "r"(c))
// clang-format on
