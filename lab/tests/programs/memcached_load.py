"""A load for memcached: sets and gets over a few connections, as much as is asked for."""

import socket
import sys

port, rounds = int(sys.argv[1]), int(sys.argv[2])
connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
for i in range(rounds):
    connection = connections[i % len(connections)]
    value = b"x" * (i * 37 % 2000)
    connection.sendall(b"set k%d 0 0 %d\r\n%s\r\n" % (i % 500, len(value), value))
    if not connection.recv(64).startswith(b"STORED"):
        sys.exit("memcached did not store")
    connection.sendall(b"get k%d\r\n" % (i % 500))
    answer = b""
    while not answer.endswith(b"END\r\n"):
        answer += connection.recv(65536)
