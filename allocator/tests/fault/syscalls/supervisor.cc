#include "fault/syscalls/supervisor.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "support/child.h"

namespace freestone_test {
namespace {

constexpr int kNoFilter = 126;

// Installs the filter and returns its listener, or -1.
int install_filter(const std::vector<int>& numbers) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const int number : numbers) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

// The file descriptor crosses from child to parent. sendmsg and recvmsg are not among the calls that a plan may hold
// up.
void send_descriptor(int socket, int descriptor) {
  char byte = 'f';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  sendmsg(socket, &message, 0);
}

int receive_descriptor(int socket) {
  char byte;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

// Answers until the child and all that share its filter are gone.
void supervise(int listener, const Plan& plan, SupervisedEnd& end) {
  for (;;) {
    pollfd waiting{listener, POLLIN, 0};
    if (poll(&waiting, 1, -1) < 0 && errno == EINTR) continue;
    if ((waiting.revents & POLLIN) == 0) return;
    seccomp_notif call{};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;  // the caller was killed meanwhile
    SystemCall seen{static_cast<pid_t>(call.pid), call.data.nr, {}, call.data.instruction_pointer};
    for (int i = 0; i < 6; ++i) seen.arguments[i] = call.data.args[i];
    const int error = plan(seen);
    ++end.calls;
    end.injected += error != 0;
    seccomp_notif_resp answer{};
    answer.id = call.id;
    answer.error = -error;
    answer.flags = error == 0 ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

}  // namespace

std::string SystemCall::caller() const {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0;
    uint64_t to = 0;
    const size_t path = line.find('/');
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2 && from <= instruction && instruction < to &&
        path != std::string::npos)
      return line.substr(path);
  }
  return {};
}

SupervisedEnd run_supervised(const std::vector<int>& numbers, const Plan& plan, const ChildBody& body) {
  int sockets[2];
  SupervisedEnd end;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return end;
  end.child = run_in_child(
      [&] {
        const int listener = install_filter(numbers);
        send_descriptor(sockets[1], listener);
        if (listener < 0) return kNoFilter;
        close(listener);
        close(sockets[0]);
        close(sockets[1]);
        return body();
      },
      [&] {
        close(sockets[1]);
        const int listener = receive_descriptor(sockets[0]);
        close(sockets[0]);
        if (listener < 0) return;
        supervise(listener, plan, end);
        close(listener);
      });
  return end;
}

bool supervision_works(std::string& reason) {
  static const SupervisedEnd trial = run_supervised(
      {SYS_getppid}, [](const SystemCall&) { return EPERM; }, [] { return getppid() == -EPERM ? 0 : 1; });
  if (trial.child.exited_with(0)) return true;
  reason = "seccomp user notification does not work here: " + trial.child.describe();
  return false;
}

}  // namespace freestone_test
