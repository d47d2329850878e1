/* The measuring stick: plain non-blocking sockets and one epoll, written as a careful C programmer would. */
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

#define EVENTS 1024

struct flow {
    int fd, ended;
    long long left, object_left;
    int64_t opened;
};

static int ep;
static struct epoll_event events[EVENTS];

static void watch(int fd, uint32_t what, void *flow) {
    struct epoll_event e = {.events = what, .data.ptr = flow};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) fail("epoll_ctl", errno);
}

static int wait_events(void) {
    int n = epoll_wait(ep, events, EVENTS, -1);
    if (n < 0 && errno != EINTR) fail("epoll_wait", errno);
    return n < 0 ? 0 : n;
}

/* Opens every flow at once. */
static void open_all(const struct args *a, struct flow *flows) {
    for (long i = 0; i < a->flows; i++) {
        struct flow *f = &flows[i];
        f->ended = 0;
        if (a->delays) f->opened = now_ns();
        f->fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (f->fd < 0) fail("socket", errno);
        if (connect(f->fd, (const struct sockaddr *)&a->addr, a->addrlen) && errno != EINPROGRESS) fail("connect", errno);
        watch(f->fd, EPOLLOUT | EPOLLET, f);
    }
}

/* Whether the attempt succeeded. */
static int connected(int fd) {
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
}

static int client(const struct args *a) {
    ready(a);
    struct flow *flows = calloc((size_t)a->flows, sizeof *flows);
    int64_t *delays = a->delays ? calloc((size_t)(a->flows * a->rounds), sizeof *delays) : NULL;
    long done = 0, failed = 0;
    int64_t start = now_ns();
    for (long r = 0; r < a->rounds; r++) {
        open_all(a, flows);
        for (long ended = 0; ended < a->flows;) {
            int n = wait_events();
            for (int i = 0; i < n; i++) {
                struct flow *f = events[i].data.ptr;
                /* Level or edge, an event may come twice. */
                if (f->ended++) continue;
                if (!connected(f->fd)) failed++;
                else {
                    if (delays) delays[done] = now_ns() - f->opened;
                    done++;
                }
                ended++;
            }
        }
        all_open(a, a->flows);
        for (long i = 0; i < a->flows; i++) close(flows[i].fd);
    }
    return say_result("epoll", a, done, failed, 0, now_ns() - start, delays);
}

/* When a sender stops whatever there is left; 0: never. */
static int64_t stop_at;

/* Writes until there is no room, no more, or no time; returns whether the flow is done. */
static int push(const struct args *a, struct flow *f) {
    while (f->left > 0) {
        if (stop_at && now_ns() >= stop_at) return 1;
        size_t piece = next_piece(f->left, f->object_left);
        ssize_t n = write(f->fd, buffer, piece);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            fail("write", errno);
        }
        f->left -= n;
        f->object_left -= n;
        if (f->object_left == 0) f->object_left = a->object;
        if ((size_t)n < piece) return 0;
    }
    return 1;
}

static int send_all(const struct args *a) {
    ready(a);
    struct flow *flows = calloc((size_t)a->flows, sizeof *flows);
    for (long i = 0; i < a->flows; i++) {
        flows[i].left = a->bytes / a->flows;
        flows[i].object_left = a->object;
    }
    int64_t start = now_ns();
    long done = 0;
    long long sent = 0;
    if (a->seconds > 0) stop_at = start + (int64_t)(a->seconds * 1e9);
    open_all(a, flows);
    while (done < a->flows) {
        int n = wait_events();
        for (int i = 0; i < n; i++) {
            struct flow *f = events[i].data.ptr;
            if (events[i].events & EPOLLERR) fail("connection", EIO);
            if (push(a, f)) {
                close(f->fd);
                sent += a->bytes / a->flows - f->left;
                done++;
            }
        }
    }
    return say_result("epoll", a, done, 0, sent, now_ns() - start, NULL);
}

/* Accepts flows and reads them to their end. Used for `server` (no bytes come) and `recv`. */
static int serve(const struct args *a) {
    int family = a->addr.ss_family, one = 1;
    int listener = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0) fail("socket", errno);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (const struct sockaddr *)&a->addr, a->addrlen)) fail("bind", errno);
    if (listen(listener, BACKLOG)) fail("listen", errno);
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    getsockname(listener, (struct sockaddr *)&addr, &len);
    say_listening(&addr);

    struct flow on_listener = {.fd = listener}, on_stdin = {.fd = 0};
    watch(listener, EPOLLIN, &on_listener);
    if (a->flows == 0) watch(0, EPOLLIN, &on_stdin);
    long accepted = 0, closed = 0, failed = 0, want = a->flows * a->rounds;
    long long bytes = 0;
    int64_t start = 0;
    while (want == 0 || closed < want) {
        int n = wait_events();
        for (int i = 0; i < n; i++) {
            struct flow *f = events[i].data.ptr;
            if (f == &on_stdin) {
                return say_result("epoll", a, closed, failed, bytes, start ? now_ns() - start : 0, NULL);
            } else if (f == &on_listener) {
                int fd;
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    if (accepted++ == 0) start = now_ns();
                    struct flow *flow = malloc(sizeof *flow);
                    flow->fd = fd;
                    watch(fd, EPOLLIN | EPOLLRDHUP, flow);
                    if (accepted == a->flows) all_open(a, accepted);
                }
                if (errno != EAGAIN) fail("accept", errno);
            } else {
                ssize_t got;
                do {
                    got = read(f->fd, buffer, BUFFER);
                    if (got > 0) bytes += got;
                } while (got == BUFFER);
                if (got == 0 || (got < 0 && errno != EAGAIN)) {
                    if (got < 0) failed++;
                    close(f->fd);
                    free(f);
                    closed++;
                }
            }
        }
    }
    return say_result("epoll", a, closed, failed, bytes, now_ns() - start, NULL);
}

int main(int argc, char **argv) {
    struct args a = parse_args(argc, argv);
    ep = epoll_create1(EPOLL_CLOEXEC);
    if (ep < 0) fail("epoll_create1", errno);
    if (!strcmp(a.mode, "client")) return client(&a);
    if (!strcmp(a.mode, "send")) return send_all(&a);
    if (!strcmp(a.mode, "server") || !strcmp(a.mode, "recv")) return serve(&a);
    usage("unknown mode");
    return 2;
}
