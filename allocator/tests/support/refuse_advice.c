/* refuse_advice [4.18] N... -- PROGRAM ARGUMENT...: runs a program to which the kernel says EINVAL for these pieces of
 * advice (madvise's third argument), as an older kernel does. With 4.18 it knows no call that came after rseq. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kAdviceMax = 16 };

int main(int argc, char** argv) {
  struct sock_filter rules[kAdviceMax + 7];
  const int first = argc > 1 && strcmp(argv[1], "4.18") == 0 ? 2 : 1;
  int program = first;
  while (program < argc && strcmp(argv[program], "--") != 0) ++program;
  const int count = program - first;
  if (program + 1 >= argc || count > kAdviceMax) return 2;
  unsigned short at = 0;
  const struct sock_filter load_call = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  const unsigned last_call = first == 2 ? SYS_rseq : ~0U;
  const struct sock_filter is_new = BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last_call, (unsigned char)(count + 4), 0);
  const struct sock_filter is_advice = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, (unsigned char)(count + 1));
  const struct sock_filter load_advice = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
  rules[at++] = load_call;
  rules[at++] = is_new;
  rules[at++] = is_advice;
  rules[at++] = load_advice;
  for (int k = 0; k < count; ++k) {
    const struct sock_filter refused =
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(argv[first + k]), (unsigned char)(count - k), 0);
    rules[at++] = refused;
  }
  const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL);
  const struct sock_filter unknown = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
  rules[at++] = allow;
  rules[at++] = refuse;
  rules[at++] = unknown;
  const struct sock_fprog filter = {at, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    perror("refuse_advice");
    return 77;
  }
  execvp(argv[program + 1], argv + program + 1);
  perror(argv[program + 1]);
  return 127;
}
