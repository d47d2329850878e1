/*
 * Several contexts in a loop of the program's own: run_once HOST PORT CONTEXTS. Each gets / over
 * TCP and counts the bytes.
 */
#include "common.h"
#include <poll.h>

#define CONTEXTS_MAX 10

static int done[CONTEXTS_MAX];
static unsigned long long bytes[CONTEXTS_MAX];

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[4096];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK)
        bytes[*(int *)ops->userData] += n;
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ops->on_readable = on_readable;
    neat_set_operations(ops->ctx, ops->flow, ops);
    return neat_write(ops->ctx, ops->flow, (const unsigned char *)request, sizeof(request) - 1, NULL, 0);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    done[*(int *)ops->userData] = 1;
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    return neat_close(ops->ctx, ops->flow);
}

int main(int argc, char **argv)
{
    static int numbers[CONTEXTS_MAX];
    struct neat_ctx *ctx[CONTEXTS_MAX];
    struct pollfd fds[CONTEXTS_MAX];
    struct neat_flow_operations ops;
    int i, left, count = argc == 4 ? atoi(argv[3]) : 0;
    if (count < 1 || count > CONTEXTS_MAX) {
        fprintf(stderr, "usage: %s HOST PORT CONTEXTS (1 to 10)\n", argv[0]);
        return 2;
    }
    for (i = 0; i < count; i++) {
        struct neat_flow *flow;
        ctx[i] = context();
        numbers[i] = i;
        memset(&ops, 0, sizeof(ops));
        ops.userData = &numbers[i];
        ops.on_connected = on_connected;
        ops.on_close = on_close;
        ops.on_error = on_error;
        flow = neat_new_flow(ctx[i]);
        if (neat_set_property(ctx[i], flow, properties_of("tcp")) || neat_set_operations(ctx[i], flow, &ops) ||
            neat_open(ctx[i], flow, argv[1], (uint16_t)atoi(argv[2]), NULL, 0))
            fail("neat_open");
        fds[i].fd = neat_get_backend_fd(ctx[i]);
        fds[i].events = POLLIN;
    }
    do {
        int timeout = 1000;
        left = 0;
        for (i = 0; i < count; i++) {
            int own;
            neat_start_event_loop(ctx[i], NEAT_RUN_NOWAIT);
            own = neat_get_backend_timeout(ctx[i]);
            if (own >= 0 && own < timeout)
                timeout = own;
            left += !done[i];
        }
        if (left > 0 && poll(fds, (nfds_t)count, timeout) < 0)
            fail("poll");
    } while (left > 0);
    for (i = 0; i < count; i++) {
        printf("%llu bytes\n", bytes[i]);
        neat_free_ctx(ctx[i]);
    }
    return 0;
}
