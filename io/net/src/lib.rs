//! Net on the operating system: non-blocking sockets, batched UDP, one epoll
