/* The same program on NEAT's interface, by libneat: a flow of the library's for each, callbacks, the library's loop. With --name it
 * connects to a name, whose first connection resolves and races, and is not measured. With --hosts it has a hosts file of its own, for
 * which it takes a mount namespace; where it may not, it connects to the address. */
#define _GNU_SOURCE
#include "common.h"
#include <neat.h>
#include <sched.h>
#include <sys/mount.h>

struct flow {
    long long left, object_left;
    int64_t opened;
};

static struct args args;
static const char *name;
static struct neat_ctx *ctx;
static struct neat_flow **flows;
static struct flow *states;
static int64_t *delays, start;
static long done, failed, accepted, closed_flows, round_ended, round_flows;
static long long bytes;
static uint16_t port;

static void check(const char *what, neat_error_code result) {
    if (result != NEAT_OK) {
        fprintf(stderr, "%s: error %llu of libneat\n", what, (unsigned long long)result);
        exit(1);
    }
}

/* Every callback answers the same. */
#define CALLBACK static neat_error_code

static void run(neat_run_mode mode) { check("neat_start_event_loop", neat_start_event_loop(ctx, mode)); }

CALLBACK client_failed(struct neat_flow_operations *ops) {
    (void)ops;
    failed++;
    if (++round_ended == round_flows) neat_stop_event_loop(ctx);
    return NEAT_OK;
}

CALLBACK client_connected(struct neat_flow_operations *ops) {
    struct flow *f = ops->userData;
    if (delays) delays[done] = now_ns() - f->opened;
    done++;
    if (++round_ended == round_flows) neat_stop_event_loop(ctx);
    return NEAT_OK;
}

static void open_all(long count, struct neat_flow_operations *ops) {
    for (long i = 0; i < count; i++) {
        struct flow *f = &states[i];
        f->left = args.bytes / args.flows;
        f->object_left = args.object;
        if (delays) f->opened = now_ns();
        ops->userData = f;
        flows[i] = neat_new_flow(ctx);
        if (!flows[i]) fail("neat_new_flow", ENOMEM);
        check("neat_set_operations", neat_set_operations(ctx, flows[i], ops));
        check("neat_open", neat_open(ctx, flows[i], name, port, NULL, 0));
    }
}

static void round_of(long count) {
    struct neat_flow_operations ops;
    memset(&ops, 0, sizeof ops);
    ops.on_connected = client_connected;
    ops.on_error = client_failed;
    round_ended = 0;
    round_flows = count;
    open_all(count, &ops);
    run(NEAT_RUN_DEFAULT);
}

static void close_all(long count) {
    for (long i = 0; i < count; i++) check("neat_close", neat_close(ctx, flows[i]));
    /* The flows are gone after the next round, their sockets after the one in which that is known. */
    run(NEAT_RUN_NOWAIT);
    run(NEAT_RUN_NOWAIT);
}

static int client(void) {
    /* Resolves and races; what wins is remembered. */
    int64_t *wanted = delays;
    delays = NULL;
    round_of(1);
    close_all(1);
    if (failed) usage("the first connection has failed");
    done = 0;
    delays = wanted;
    ready(&args);
    start = now_ns();
    for (long r = 0; r < args.rounds; r++) {
        round_of(args.flows);
        all_open(&args, args.flows);
        close_all(args.flows);
    }
    return say_result("libneat", &args, done, failed, 0, now_ns() - start, delays);
}

CALLBACK send_closed(struct neat_flow_operations *ops) {
    (void)ops;
    if (++closed_flows == args.flows) neat_stop_event_loop(ctx);
    return NEAT_OK;
}

CALLBACK send_failed(struct neat_flow_operations *ops) {
    failed++;
    return neat_close(ctx, ops->flow);
}

/* One piece for each callback: the library keeps what does not fit, and calls when there is room again. */
CALLBACK push(struct neat_flow_operations *ops) {
    struct flow *f = ops->userData;
    size_t piece = next_piece(f->left, f->object_left);
    check("neat_write", neat_write(ctx, ops->flow, (unsigned char *)buffer, (uint32_t)piece, NULL, 0));
    f->left -= (long long)piece;
    f->object_left -= (long long)piece;
    if (f->object_left == 0) f->object_left = args.object;
    if (f->left > 0) return NEAT_OK;
    done++;
    return neat_close(ctx, ops->flow);
}

static int send_all(void) {
    struct neat_flow_operations ops;
    memset(&ops, 0, sizeof ops);
    ops.on_writable = push;
    ops.on_error = send_failed;
    ops.on_close = send_closed;
    ready(&args);
    start = now_ns();
    open_all(args.flows, &ops);
    run(NEAT_RUN_DEFAULT);
    return say_result("libneat", &args, done, failed, args.bytes / args.flows * done, now_ns() - start, NULL);
}

CALLBACK served(struct neat_flow_operations *ops) {
    (void)ops;
    closed_flows++;
    if (args.flows && closed_flows == args.flows * args.rounds) neat_stop_event_loop(ctx);
    return NEAT_OK;
}

CALLBACK got(struct neat_flow_operations *ops) {
    uint32_t n = 0;
    while (neat_read(ctx, ops->flow, (unsigned char *)buffer, BUFFER, &n, NULL, 0) == NEAT_OK && n > 0) bytes += n;
    return NEAT_OK;
}

CALLBACK broken(struct neat_flow_operations *ops) {
    failed++;
    return neat_close(ctx, ops->flow);
}

CALLBACK incoming(struct neat_flow_operations *ops) {
    (void)ops;
    if (accepted++ == 0) start = now_ns();
    if (accepted == args.flows) all_open(&args, accepted);
    return NEAT_OK;
}

/* A port that is free now: NEAT's interface chooses none, and reports none. */
static void choose_port(void) {
    int s = socket(args.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&args.addr, args.addrlen) < 0) fail("bind", errno);
    if (getsockname(s, (struct sockaddr *)&args.addr, &args.addrlen) < 0) fail("getsockname", errno);
    close(s);
}

static uint16_t port_of_addr(void) {
    return ntohs(args.addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&args.addr)->sin6_port
                                                 : ((struct sockaddr_in *)&args.addr)->sin_port);
}

static const char *host_of_addr(void) {
    static char host[INET6_ADDRSTRLEN];
    const void *at = args.addr.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&args.addr)->sin6_addr
                                                     : (void *)&((struct sockaddr_in *)&args.addr)->sin_addr;
    if (!inet_ntop(args.addr.ss_family, at, host, sizeof host)) fail("inet_ntop", errno);
    return host;
}

static int serve(void) {
    struct neat_flow *listener = neat_new_flow(ctx);
    struct neat_flow_operations ops;
    char host[INET6_ADDRSTRLEN];
    NEAT_OPTARGS_DECLARE(1);
    NEAT_OPTARGS_INIT();
    if (port_of_addr() == 0) choose_port();
    snprintf(host, sizeof host, "%s", host_of_addr());
    NEAT_OPTARG_STRING(NEAT_TAG_LOCAL_NAME, host);
    memset(&ops, 0, sizeof ops);
    ops.on_connected = incoming;
    ops.on_readable = got;
    ops.on_close = served;
    ops.on_error = broken;
    check("neat_set_property", neat_set_property(ctx, listener, "{\"transport\":{\"value\":\"TCP\",\"precedence\":1}}"));
    check("neat_set_operations", neat_set_operations(ctx, listener, &ops));
    check("neat_accept", neat_accept(ctx, listener, port_of_addr(), NEAT_OPTARGS, NEAT_OPTARGS_COUNT));
    say_listening(&args.addr);
    run(NEAT_RUN_DEFAULT);
    return say_result("libneat", &args, closed_flows, failed, bytes, start ? now_ns() - start : 0, NULL);
}

/* This file is the system's hosts file, for this process alone. */
static int use_hosts(const char *file) {
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(file, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
}

int main(int argc, char **argv) {
    const char *hosts = NULL;
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--name") && i + 1 < argc) name = argv[++i];
        else if (!strcmp(argv[i], "--hosts") && i + 1 < argc) hosts = argv[++i];
        else argv[kept++] = argv[i];
    }
    args = parse_args(kept, argv);
    if (hosts && !use_hosts(hosts)) {
        fprintf(stderr, "no mount namespace (%s): by address\n", strerror(errno));
        name = NULL;
    }
    if (!name) name = host_of_addr();
    port = port_of_addr();
    ctx = neat_init_ctx();
    if (!ctx) return 1;
    neat_log_level(ctx, NEAT_LOG_OFF);
    flows = calloc((size_t)args.flows + 1, sizeof *flows);
    states = calloc((size_t)args.flows + 1, sizeof *states);
    if (args.delays) delays = calloc((size_t)(args.flows * args.rounds), sizeof *delays);
    if (!strcmp(args.mode, "client")) return client();
    if (!strcmp(args.mode, "send")) return send_all();
    if (!strcmp(args.mode, "server") || !strcmp(args.mode, "recv")) return serve();
    usage("unknown mode");
    return 2;
}
