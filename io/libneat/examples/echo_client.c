/*
 * Sends bytes to an echo server and compares what comes back: echo_client TRANSPORT HOST PORT
 * BYTES [MESSAGE]
 */
#include "common.h"

static uint64_t total, sent, received;
static uint32_t message = 16384;
static int status = 1;

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)(i * 31 + (i >> 8));
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n = total - sent < message ? (uint32_t)(total - sent) : message, i;
    for (i = 0; i < n; i++)
        buffer[i] = byte_at(sent + i);
    ops->on_writable = NULL;
    if (neat_write(ops->ctx, ops->flow, buffer, n, NULL, 0) != NEAT_OK)
        fail("neat_write");
    sent += n;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[1500];
    uint32_t n, i;
    neat_error_code e = neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0);
    if (e == NEAT_ERROR_WOULD_BLOCK)
        return NEAT_OK;
    if (e != NEAT_OK)
        fail("neat_read");
    for (i = 0; i < n; i++)
        if (buffer[i] != byte_at(received + i))
            fail("something else has come back");
    received += n;
    if (received == total) {
        status = 0;
        printf("%llu bytes over %d\n", (unsigned long long)total, ops->transport_protocol);
        return neat_close(ops->ctx, ops->flow);
    }
    if (received == sent) {
        ops->on_writable = on_writable;
        return neat_set_operations(ops->ctx, ops->flow, ops);
    }
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->on_writable = on_writable;
    ops->on_readable = on_readable;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

int main(int argc, char **argv)
{
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    const char *properties = argc > 4 ? properties_of(argv[1]) : NULL;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s any|tcp|sctp|udp|tls|dtls|sctp-dtls HOST PORT BYTES [MESSAGE]\n", argv[0]);
        return 2;
    }
    total = strtoull(argv[4], NULL, 10);
    if (argc > 5)
        message = (uint32_t)atoi(argv[5]);
    if (message == 0 || message > 65536)
        fail("a message has 1 to 65536 bytes");
    ctx = context();
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    if (neat_set_property(ctx, flow, properties) != NEAT_OK || neat_set_operations(ctx, flow, &ops) != NEAT_OK)
        fail("properties");
    if (neat_open(ctx, flow, argv[2], (uint16_t)atoi(argv[3]), NULL, 0) != NEAT_OK)
        fail("neat_open");
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_free_ctx(ctx);
    return status;
}
