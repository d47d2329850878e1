/*
 * Client and server in one context, with many flows: traffic TRANSPORT PORT FLOWS BYTES. userData distinguishes the roles.
 */
#include "common.h"
#include <time.h>

static unsigned long long wanted, received;
static int flows, ended, connected;

struct sender {
    unsigned long long left;
};

static neat_error_code sink_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK)
        received += n;
    return NEAT_OK;
}

static neat_error_code source_written(struct neat_flow_operations *ops)
{
    struct sender *sender = ops->userData;
    return sender->left == 0 ? neat_shutdown(ops->ctx, ops->flow) : NEAT_OK;
}

static neat_error_code source_writable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[32768];
    struct sender *sender = ops->userData;
    uint32_t n = sender->left < sizeof(buffer) ? (uint32_t)sender->left : (uint32_t)sizeof(buffer);
    if (n == 0) {
        ops->on_writable = NULL;
        return neat_set_operations(ops->ctx, ops->flow, ops);
    }
    sender->left -= n;
    return neat_write(ops->ctx, ops->flow, buffer, n, NULL, 0);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    if (ops->userData != NULL) {
        free(ops->userData);
    } else if (++ended == flows) {
        neat_stop_event_loop(ops->ctx);
    }
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    connected++;
    if (ops->userData == NULL) {
        ops->on_readable = sink_readable;
    } else {
        neat_set_low_watermark(ops->ctx, ops->flow, 65536);
        ops->on_writable = source_writable;
        ops->on_all_written = source_written;
    }
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

int main(int argc, char **argv)
{
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    const char *properties = argc == 5 ? properties_of(argv[1]) : NULL;
    char *stats = NULL;
    int i;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s tcp|sctp PORT FLOWS BYTES\n", argv[0]);
        return 2;
    }
    flows = atoi(argv[3]);
    wanted = strtoull(argv[4], NULL, 10);
    ctx = context();
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    flow = neat_new_flow(ctx);
    if (neat_set_property(ctx, flow, properties) || neat_set_operations(ctx, flow, &ops) ||
        neat_accept(ctx, flow, (uint16_t)atoi(argv[2]), NULL, 0))
        fail("neat_accept");
    for (i = 0; i < flows; i++) {
        struct sender *sender = malloc(sizeof(*sender));
        if (sender == NULL)
            fail("no memory");
        sender->left = wanted;
        ops.userData = sender;
        flow = neat_new_flow(ctx);
        if (neat_set_property(ctx, flow, properties) || neat_set_operations(ctx, flow, &ops) ||
            neat_open(ctx, flow, "127.0.0.1", (uint16_t)atoi(argv[2]), NULL, 0))
            fail("neat_open");
    }
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    if (neat_get_stats(ctx, &stats) != NEAT_OK)
        fail("neat_get_stats");
    printf("%llu bytes over %d flows\n%s\n", received, flows, stats);
    free(stats);
    /* The listener has no userData, and is closed with the context. */
    flows = -1;
    neat_free_ctx(ctx);
    return received != wanted * (unsigned long long)atoi(argv[3]);
}
