/* What the C peers share: the command line, the clock, the one line of JSON. No transport here. */
#ifndef PEER_COMMON_H
#define PEER_COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The most that is read or written by one call, in bytes. Every peer uses the same. */
#define BUFFER 65536
/* What is sent: bytes of this value, in every peer. */
#define PAYLOAD 0x5a
/* Pending connections of a listener; the system's own bound (somaxconn) is 4,096. */
#define BACKLOG 4096
/* The largest number of flows that a peer takes. */
#define FLOWS_MAX 100000

struct args {
    const char *mode;
    struct sockaddr_storage addr;
    socklen_t addrlen;
    long flows, rounds, limit;
    double seconds;
    long long bytes, object;
    int hold, leave_open, delays, mark;
};

/* What is sent, and where data is read to; at the beginning of a page in every peer. */
static char buffer[BUFFER] __attribute__((aligned(4096)));

/* Gives what is sent a memory of its own. Until a page is written, all that nobody has written are the same one of zeroes (4 kB, always
   in the processor's nearest cache), and a program that sends it is measured with a copy that is cheaper than anybody's. */
static inline void fill(void) { memset(buffer, PAYLOAD, BUFFER); }

static inline void usage(const char *why) {
    fprintf(stderr,
            "%s\nusage: MODE(client|server|send|recv) --addr IP:PORT [--flows N] [--rounds R] [--bytes B] [--object SIZE]\n"
            "       [--delays] [--mark] [--hold | --leave-open] [--limit SECONDS] [--seconds S]\n",
            why);
    exit(2);
}

static inline void fail(const char *what, int error) {
    fprintf(stderr, "%s: %s\n", what, strerror(error));
    exit(1);
}

static inline void parse_addr(struct args *a, const char *text) {
    char host[64];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host) usage("--addr wants IP:PORT");
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    long port = strtol(colon + 1, NULL, 10);
    if (port < 0 || port > 65535) usage("a port is at most 65535");
    if (host[0] == '[') {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->addr;
        size_t n = strlen(host);
        if (host[n - 1] != ']') usage("--addr wants [IPV6]:PORT");
        host[n - 1] = 0;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host + 1, &in6->sin6_addr) != 1) usage("not an IPv6 address");
        a->addrlen = sizeof *in6;
    } else {
        struct sockaddr_in *in = (struct sockaddr_in *)&a->addr;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        if (inet_pton(AF_INET, host, &in->sin_addr) != 1) usage("not an IPv4 address");
        a->addrlen = sizeof *in;
    }
}

static inline struct args parse_args(int argc, char **argv) {
    struct args a = {.mode = argc > 1 ? argv[1] : "", .flows = 1, .rounds = 1, .limit = 120, .object = BUFFER};
    for (int i = 2; i < argc; i++) {
        const char *o = argv[i];
        if (!strcmp(o, "--hold")) a.hold = 1;
        else if (!strcmp(o, "--leave-open")) a.leave_open = 1;
        else if (!strcmp(o, "--delays")) a.delays = 1;
        else if (!strcmp(o, "--mark")) a.mark = 1;
        else {
            const char *v = i + 1 < argc ? argv[++i] : "";
            if (!strcmp(o, "--addr")) parse_addr(&a, v);
            else if (!strcmp(o, "--flows")) a.flows = strtol(v, NULL, 10);
            else if (!strcmp(o, "--rounds")) a.rounds = strtol(v, NULL, 10);
            else if (!strcmp(o, "--bytes")) a.bytes = strtoll(v, NULL, 10);
            else if (!strcmp(o, "--object")) a.object = strtoll(v, NULL, 10);
            else if (!strcmp(o, "--limit")) a.limit = strtol(v, NULL, 10);
            else if (!strcmp(o, "--seconds")) a.seconds = strtod(v, NULL);
            else usage(o);
        }
    }
    if (!a.addrlen) usage("--addr is missing");
    if (a.flows < 0 || a.flows > FLOWS_MAX || a.rounds < 1 || a.object < 1 || a.bytes < 0 || !(a.seconds >= 0)) usage("a number is out of range");
    if (strcmp(a.mode, "server") && a.flows < 1) usage("--flows 0 is for servers only");
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(a.mode, "send")) fill();
    /* Whatever happens, this process ends: the default action of SIGALRM. */
    alarm((unsigned)a.limit);
    return a;
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The most that the next write may hand over: an object is handed over in pieces of at most one buffer. */
static inline size_t next_piece(long long left, long long object_left) {
    long long n = left < object_left ? left : object_left;
    return (size_t)(n < BUFFER ? n : BUFFER);
}

static inline void say_listening(const struct sockaddr_storage *addr) {
    char host[64];
    if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        printf("{\"listening\":\"[%s]:%d\"}\n", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        printf("{\"listening\":\"%s:%d\"}\n", host, ntohs(in->sin_port));
    }
    fflush(stdout);
}

/* Everything is prepared: says so and waits for a line of input, so that what follows can be measured alone. */
static inline void ready(const struct args *a) {
    if (!a->mark) return;
    printf("{\"ready\":1}\n");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0 && c != '\n') {}
}

/* All flows are open. With --leave-open the process ends here, with everything it holds; with --hold it waits for the
 * end of its standard input. */
static inline void all_open(const struct args *a, long flows) {
    if (!a->hold && !a->leave_open) return;
    printf("{\"held\":%ld}\n", flows);
    fflush(stdout);
    if (a->leave_open) _exit(0);
    char c;
    while (read(0, &c, 1) > 0) {}
}

static int compare(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

/* After a mark the process stays until its input ends, so that what it costs to end can be left out of what is measured. */
static inline void stay(const struct args *a) {
    char c;
    while (a->mark && read(0, &c, 1) > 0) {}
}

static inline int say_result(const char *peer, const struct args *a, long done, long failed, long long bytes, int64_t ns,
                             int64_t *delays) {
    printf("{\"peer\":\"%s\",\"mode\":\"%s\",\"flows\":%ld,\"rounds\":%ld,\"done\":%ld,\"failed\":%ld,\"bytes\":%lld,\"ns\":%lld",
           peer, a->mode, a->flows, a->rounds, done, failed, bytes, (long long)ns);
    if (delays && done > 0) {
        qsort(delays, (size_t)done, sizeof *delays, compare);
        printf(",\"delay_median_ns\":%lld,\"delay_p90_ns\":%lld", (long long)delays[done / 2], (long long)delays[done * 9 / 10]);
    }
    printf("}\n");
    fflush(stdout);
    stay(a);
    /* A server without end does not mind flows that their peer gives up, as the losers of a race are. */
    return failed && a->flows ? 1 : 0;
}

#endif
