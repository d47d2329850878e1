/*
 * Sends messages to an echo server on several streams of one flow, and compares what comes back on
 * which: streams PORT STREAMS MESSAGES SIZE
 */
#include "../../examples/common.h"

static unsigned streams, messages, sent, received, next[16];
static uint32_t size;
static int status = 1;

static unsigned char byte_at(unsigned message, size_t i)
{
    return (unsigned char)(message * 41 + i * 29 + (i >> 8));
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    static unsigned char bytes[65536];
    uint32_t i;
    NEAT_OPTARGS_DECLARE(1);
    NEAT_OPTARGS_INIT();
    NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, (int)(sent % streams));
    for (i = 0; i < size; i++)
        bytes[i] = byte_at(sent, i);
    if (neat_write(ops->ctx, ops->flow, bytes, size, NEAT_OPTARGS, NEAT_OPTARGS_COUNT) != NEAT_OK)
        fail("neat_write");
    if (++sent < messages)
        return NEAT_OK;
    ops->on_writable = NULL;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char bytes[65536];
    uint32_t n, i;
    unsigned stream;
    neat_error_code e;
    NEAT_OPTARGS_DECLARE(1);
    NEAT_OPTARGS_INIT();
    NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, NEAT_INVALID_STREAM);
    e = neat_read(ops->ctx, ops->flow, bytes, sizeof(bytes), &n, NEAT_OPTARGS, NEAT_OPTARGS_COUNT);
    if (e == NEAT_ERROR_WOULD_BLOCK)
        return NEAT_OK;
    if (e != NEAT_OK)
        fail("neat_read");
    stream = (unsigned)NEAT_OPTARGS[0].value.integer;
    if (n != size || stream >= streams)
        fail("a message of another length, or on another stream");
    for (i = 0; i < n; i++)
        if (bytes[i] != byte_at(next[stream], i))
            fail("something else has come back");
    next[stream] += streams;
    if (++received < messages)
        return NEAT_OK;
    status = 0;
    printf("%u messages back on %u streams\n", messages, streams);
    return neat_close(ops->ctx, ops->flow);
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
    if (argc != 5) {
        fprintf(stderr, "usage: %s PORT STREAMS MESSAGES SIZE\n", argv[0]);
        return 2;
    }
    streams = (unsigned)atoi(argv[2]);
    messages = (unsigned)atoi(argv[3]);
    size = (uint32_t)atoi(argv[4]);
    if (streams < 1 || streams > 16 || size < 1 || size > 65536)
        fail("1 to 16 streams, and messages of 1 to 65536 bytes");
    for (sent = 0; sent < streams; sent++)
        next[sent] = sent;
    sent = 0;
    ctx = context();
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    if (neat_set_property(ctx, flow, properties_of("sctp")) != NEAT_OK ||
        neat_set_operations(ctx, flow, &ops) != NEAT_OK)
        fail("properties");
    if (neat_open(ctx, flow, "127.0.0.1", (uint16_t)atoi(argv[1]), NULL, 0) != NEAT_OK)
        fail("neat_open");
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_free_ctx(ctx);
    return status;
}
