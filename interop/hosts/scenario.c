#define _GNU_SOURCE
#include "scenario.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "neater_shim.h"

/* Connections to the echo server, and bytes each way on each. */
#define CONNECTIONS 50
#define BYTES 100000
/* More connections at once than an engine accepts in a turn. */
#define FLOOD 200
/* Through QUIC, by a thread that does not drive. */
#define QUIC_BYTES 300000
/* How long nothing happens in the idle phase, and how many turns that may cost: a few deadlines of QUIC connections that
 * have just ended, and the wake-up at the end. A loop that spins makes thousands. */
#define IDLE_MS 400
#define IDLE_TURNS_MAX 40
/* All in all: some hundred are usual, a loop that spins makes hundreds of thousands. */
#define TURNS_MAX 2000
/* Whatever goes wrong, the program ends. */
#define WATCHDOG_S 18

struct transfer {
    int64_t id;
    size_t sent, received;
    int finished, over;
};

/* Each begins when nothing else moves, so that nothing else can hide a wake-up that does not come: many transfers and the
 * fallback; more to accept than a turn's budget; another thread that does not drive; silence; the end. */
static enum { WORKING, FLOODED, THREADED, IDLE, RELEASED } phase;
static NeaterShim *shim;
static struct transfer transfers[CONNECTIONS];
static int64_t fallback, keeper;
static int fallback_done;
static long fallback_ms;
static uint64_t turns, idle_from, idle_turns;
static int fds_before;
static struct timespec start;

static long ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

static _Noreturn void fail(const char *what, int64_t code) {
    fprintf(stderr, "failed after %ld ms and %llu turns: %s (%lld)\n", ms(), (unsigned long long)turns, what,
            (long long)code);
    exit(1);
}

static int64_t check(const char *what, int64_t code) {
    if (code < 0) fail(what, code);
    return code;
}

static int open_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    if (!dir) return -1;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static unsigned char pattern(size_t transfer, size_t at) { return (unsigned char)((transfer * 7 + at) % 251); }

void scenario_begin(int argc, char **argv) {
    if (argc < 3) fail("usage: PROGRAM ECHO_PORT BLACK_HOLE_PORT", argc);
    uint16_t echo = (uint16_t)atoi(argv[1]), black_hole = (uint16_t)atoi(argv[2]);
    alarm(WATCHDOG_S);
    clock_gettime(CLOCK_MONOTONIC, &start);
    fds_before = open_fds();
    shim = neater_shim_create();
    if (!shim) fail("create", 0);
    for (int i = 0; i < CONNECTIONS; i++)
        transfers[i].id = check("connect", neater_shim_connect(shim, "127.0.0.1", echo, NULL, 0));
    keeper = check("connect the keeper", neater_shim_connect(shim, "127.0.0.1", echo, NULL, 0));
    /* The first address swallows SYNs: only a timer can bring this one about. */
    fallback = check("connect with fallback", neater_shim_connect(shim, "127.0.0.1", black_hole, "127.0.0.1", echo));
}

int scenario_fd(void) { return (int)check("fd", neater_shim_fd(shim)); }

static void transfer_step(size_t n) {
    static unsigned char buf[16384];
    struct transfer *t = &transfers[n];
    if (t->over || !check("state", neater_shim_state(shim, t->id))) return;
    while (t->sent < BYTES) {
        size_t len = BYTES - t->sent < sizeof buf ? BYTES - t->sent : sizeof buf;
        for (size_t i = 0; i < len; i++) buf[i] = pattern(n, t->sent + i);
        int64_t taken = neater_shim_send(shim, t->id, buf, len);
        if (taken == NEATER_SHIM_AGAIN) break;
        t->sent += (size_t)check("send", taken);
    }
    if (t->sent == BYTES && !t->finished) {
        check("finish", neater_shim_finish(shim, t->id));
        t->finished = 1;
    }
    for (;;) {
        int64_t got = neater_shim_receive(shim, t->id, buf, sizeof buf);
        if (got == NEATER_SHIM_AGAIN) return;
        check("receive", got);
        for (int64_t i = 0; i < got; i++)
            if (buf[i] != pattern(n, t->received + (size_t)i)) fail("a wrong byte of transfer", (int64_t)n);
        t->received += (size_t)got;
        if (got == 0) break;
    }
    if (t->received != BYTES) fail("bytes echoed", (int64_t)t->received);
    check("close", neater_shim_close(shim, t->id));
    t->over = 1;
}

static void fallback_step(void) {
    if (fallback_done || !check("state of the fallback", neater_shim_state(shim, fallback))) return;
    fallback_ms = ms();
    fallback_done = 1;
    check("close the fallback", neater_shim_close(shim, fallback));
}

static int working(void) {
    int busy = 0;
    for (size_t i = 0; i < CONNECTIONS; i++) {
        transfer_step(i);
        busy += !transfers[i].over;
    }
    fallback_step();
    if (check("state of the keeper", neater_shim_state(shim, keeper)) != 1) busy = 1;
    return busy || !fallback_done;
}

int scenario_ready(void) {
    turns = (uint64_t)check("turn", neater_shim_turn(shim));
    if (turns > TURNS_MAX) fail("it spins: turns", (int64_t)turns);
    if (phase == WORKING && !working()) {
        phase = FLOODED;
        check("flood", neater_shim_flood(shim, FLOOD));
    }
    if (phase == FLOODED && check("accepted", neater_shim_flood_accepted(shim)) == FLOOD) {
        phase = THREADED;
        check("end of the flood", neater_shim_flood_end(shim));
        check("quic", neater_shim_quic_from_thread(shim, QUIC_BYTES));
    }
    if (phase == THREADED && check("threads", neater_shim_threads_done(shim)) == 1) {
        phase = IDLE;
        idle_from = turns;
        /* Nothing moves until another thread says something. */
        check("thread", neater_shim_send_from_thread(shim, keeper, 'w', IDLE_MS));
    }
    if (phase == IDLE) {
        unsigned char c;
        int64_t got = neater_shim_receive(shim, keeper, &c, 1);
        if (got == NEATER_SHIM_AGAIN) return 0;
        check("receive on the keeper", got);
        if (got != 1 || c != 'w') fail("what the thread sent came back as", got ? c : -1);
        idle_turns = turns - idle_from;
        check("release", neater_shim_release(shim));
        phase = RELEASED;
    }
    return phase == RELEASED && check("is done", neater_shim_is_done(shim));
}

_Noreturn void scenario_end(uint64_t wakeups) {
    neater_shim_destroy(shim);
    int fds = open_fds();
    printf("turns=%llu idle_turns=%llu wakeups=%llu fallback_ms=%ld all_ms=%ld fds=%d->%d\n", (unsigned long long)turns,
           (unsigned long long)idle_turns, (unsigned long long)wakeups, fallback_ms, ms(), fds_before, fds);
    if (phase != RELEASED) fail("ended early", phase);
    if (idle_turns > IDLE_TURNS_MAX) fail("turns while idle", (int64_t)idle_turns);
    if (wakeups > turns + 16) fail("it spins: wake-ups of the host", (int64_t)wakeups);
    if (fds != fds_before) fail("descriptors left open", fds - fds_before);
    if (fallback_ms < 200 || fallback_ms > 5000) fail("the fallback came at ms", fallback_ms);
    puts("ok");
    fflush(stdout);
    exit(0);
}
