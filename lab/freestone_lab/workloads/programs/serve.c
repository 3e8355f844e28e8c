/* serve SOCKET REQUESTS... -- SERVER ARGUMENT...
 *
 * Fixed work for a server, in one process tree: starts SERVER, opens one connection to the Unix socket per file of
 * requests, sends the files and reads every answer until the server closes, then ends the server with SIGTERM. Prints
 * one line that depends on every byte of the answers. It allocates nothing, so a preloaded allocator costs it nothing.
 *
 * A header line "Date: ..." is left out of the digest: it is the only part of an answer that time changes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMaximumConnections = 16, kBufferBytes = 1 << 16, kStartAttempts = 10000, kIdleMilliseconds = 20000 };

static const char kSkipFrom[] = "\nDate: ";

struct connection {
  int descriptor;
  int requests; /* the open file */
  char pending[kBufferBytes];
  size_t pending_bytes;
  size_t pending_sent;
  off_t remaining; /* bytes of requests not yet sent */
  uint64_t digest;
  uint64_t received;
  size_t matched; /* how much of kSkipFrom the last bytes were */
  int skipping;   /* inside the value of a Date header */
};

static pid_t server;

static void die(const char* what) {
  fprintf(stderr, "serve: %s: %s\n", what, strerror(errno));
  if (server > 0) kill(server, SIGKILL);
  exit(1);
}

static void digest_bytes(struct connection* c, const char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const char byte = bytes[i];
    if (c->skipping) {
      if (byte != '\r') continue;
      c->skipping = 0;
    }
    c->digest = (c->digest ^ (unsigned char)byte) * 1099511628211u;
    ++c->received;
    c->matched = byte == kSkipFrom[c->matched] ? c->matched + 1 : (size_t)(byte == kSkipFrom[0]);
    if (c->matched == sizeof kSkipFrom - 1) {
      c->matched = 0;
      c->skipping = 1;
    }
  }
}

static void start_server(const char* socket_path, char** command) {
  unlink(socket_path);
  server = fork();
  if (server < 0) die("fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    execvp(command[0], command);
    fprintf(stderr, "serve: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
}

static int connect_to(const char* socket_path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(socket_path) >= sizeof address.sun_path) die("the path of the socket is too long");
  strcpy(address.sun_path, socket_path);
  for (int attempt = 0; attempt < kStartAttempts; ++attempt) {
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) die("socket");
    if (connect(descriptor, (struct sockaddr*)&address, sizeof address) == 0) {
      fcntl(descriptor, F_SETFL, O_NONBLOCK);
      return descriptor;
    }
    close(descriptor);
    int status;
    if (waitpid(server, &status, WNOHANG) == server) {
      server = 0;
      fprintf(stderr, "serve: the server ended before it answered (status %d)\n", status);
      exit(1);
    }
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  errno = ETIMEDOUT;
  die("connect");
  return -1;
}

static void open_requests(struct connection* c, const char* path) {
  c->requests = open(path, O_RDONLY | O_CLOEXEC);
  if (c->requests < 0) die(path);
  c->remaining = lseek(c->requests, 0, SEEK_END);
  if (c->remaining < 0 || lseek(c->requests, 0, SEEK_SET) != 0) die(path);
  c->digest = 14695981039346656037u;
}

/* The file is read in small pieces: the size of the requests is no part of what the server is measured by. */
static void send_some(struct connection* c) {
  if (c->pending_sent == c->pending_bytes) {
    const ssize_t count = read(c->requests, c->pending, sizeof c->pending);
    if (count <= 0) die("read of the requests");
    c->pending_bytes = (size_t)count;
    c->pending_sent = 0;
  }
  const ssize_t count =
      send(c->descriptor, c->pending + c->pending_sent, c->pending_bytes - c->pending_sent, MSG_NOSIGNAL);
  if (count > 0) {
    c->pending_sent += (size_t)count;
    c->remaining -= count;
  } else if (errno != EAGAIN && errno != EINTR) {
    die("send");
  }
}

/* One turn on one connection; returns whether it is still open. */
static int pump(struct connection* c, short events) {
  static char buffer[kBufferBytes];
  if (events & (POLLIN | POLLHUP | POLLERR)) {
    const ssize_t count = read(c->descriptor, buffer, sizeof buffer);
    if (count == 0) return 0;
    if (count > 0) {
      digest_bytes(c, buffer, (size_t)count);
    } else if (errno != EAGAIN && errno != EINTR) {
      die("read");
    }
  }
  if ((events & POLLOUT) && c->remaining > 0) send_some(c);
  return 1;
}

static void converse(struct connection* connections, int count) {
  int open_count = count;
  while (open_count > 0) {
    struct pollfd polled[kMaximumConnections];
    for (int i = 0; i < count; ++i) {
      polled[i].fd = connections[i].descriptor;
      polled[i].events = POLLIN;
      if (connections[i].remaining > 0) polled[i].events |= POLLOUT;
    }
    const int ready = poll(polled, (nfds_t)count, kIdleMilliseconds);
    if (ready == 0) errno = ETIMEDOUT;
    if (ready <= 0) die("the server stopped answering");
    for (int i = 0; i < count; ++i) {
      if (connections[i].descriptor < 0 || polled[i].revents == 0) continue;
      if (!pump(&connections[i], polled[i].revents)) {
        close(connections[i].descriptor);
        connections[i].descriptor = -1; /* poll ignores negative descriptors */
        --open_count;
      }
    }
  }
}

int main(int argc, char** argv) {
  static struct connection connections[kMaximumConnections];
  int separator = 2;
  while (separator < argc && strcmp(argv[separator], "--") != 0) ++separator;
  const int count = separator - 2;
  if (count < 1 || count > kMaximumConnections || separator + 1 >= argc) {
    fprintf(stderr, "usage: serve SOCKET REQUESTS... -- SERVER ARGUMENT...\n");
    return 2;
  }
  for (int i = 0; i < count; ++i) open_requests(&connections[i], argv[2 + i]);
  start_server(argv[1], argv + separator + 1);
  for (int i = 0; i < count; ++i) connections[i].descriptor = connect_to(argv[1]);
  converse(connections, count);
  kill(server, SIGTERM);
  int status;
  if (waitpid(server, &status, 0) != server) die("waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "serve: the server ended badly (status %d)\n", status);
    return 1;
  }
  for (int i = 0; i < count; ++i) {
    if (connections[i].remaining > 0) {
      fprintf(stderr, "serve: the server closed connection %d early\n", i);
      return 1;
    }
    printf("%llu bytes, digest %016llx\n", (unsigned long long)connections[i].received,
           (unsigned long long)connections[i].digest);
  }
  return 0;
}
