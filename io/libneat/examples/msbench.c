/*
 * Several flows as streams of one SCTP association, with a priority and a timer each: msbench
 * server PORT | client HOST PORT FLOWS
 */
#include "common.h"

#define EACH 200000u

struct stream {
    unsigned sent, back;
    int number;
    uv_timer_t timer;
};

static int left, failed;

static neat_error_code echo(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n;
    neat_error_code e = neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0);
    if (e == NEAT_OK && n > 0)
        return neat_write(ops->ctx, ops->flow, buffer, n, NULL, 0);
    return NEAT_OK;
}

static neat_error_code accepted(struct neat_flow_operations *ops)
{
    ops->on_readable = echo;
    printf("accepted\n");
    fflush(stdout);
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    struct stream *stream = ops->userData;
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) != NEAT_OK)
        return NEAT_OK;
    stream->back += n;
    return stream->back < EACH ? NEAT_OK : neat_close(ops->ctx, ops->flow);
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[1000];
    struct stream *stream = ops->userData;
    if (stream->sent == EACH) {
        ops->on_writable = NULL;
        return neat_set_operations(ops->ctx, ops->flow, ops);
    }
    stream->sent += sizeof(buffer);
    return neat_write(ops->ctx, ops->flow, buffer, sizeof(buffer), NULL, 0);
}

/* The stream begins to send when its timer says so. */
static void on_timer(uv_timer_t *timer)
{
    struct neat_flow_operations *ops = timer->data;
    ops->on_readable = on_readable;
    ops->on_writable = on_writable;
    neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    struct stream *stream = ops->userData;
    if (ops->transport_protocol != NEAT_STACK_SCTP && ops->transport_protocol != NEAT_STACK_SCTP_UDP)
        fail("that is not SCTP");
    uv_timer_init(neat_get_event_loop(ops->ctx), &stream->timer);
    stream->timer.data = ops;
    uv_timer_start(&stream->timer, on_timer, 10 * (uint64_t)stream->number, 0);
    return NEAT_OK;
}

static void freed(uv_handle_t *handle)
{
    free((char *)handle - offsetof(struct stream, timer));
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    struct stream *stream = ops->userData;
    if (stream == NULL)
        return NEAT_OK;
    failed += stream->back != EACH;
    printf("stream %d: %u back\n", stream->number, stream->back);
    uv_close((uv_handle_t *)&stream->timer, freed);
    if (--left == 0)
        neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    failed++;
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static void on_input(uv_poll_t *handle, int status, int events)
{
    char c;
    (void)events;
    if (status < 0 || read(0, &c, 1) <= 0) {
        uv_poll_stop(handle);
        uv_close((uv_handle_t *)handle, NULL);
        neat_stop_event_loop(handle->data);
    }
}

int main(int argc, char **argv)
{
    struct neat_ctx *ctx = context();
    struct neat_flow_operations ops;
    struct neat_flow *flow;
    uv_poll_t input;
    memset(&ops, 0, sizeof(ops));
    ops.on_error = on_error;
    if (argc == 3) {
        ops.on_connected = accepted;
        flow = neat_new_flow(ctx);
        if (neat_set_property(ctx, flow, properties_of("sctp")) || neat_set_operations(ctx, flow, &ops) ||
            neat_accept(ctx, flow, (uint16_t)atoi(argv[2]), NULL, 0))
            fail("neat_accept");
        uv_poll_init(neat_get_event_loop(ctx), &input, 0);
        input.data = ctx;
        uv_poll_start(&input, UV_READABLE, on_input);
        printf("listening\n");
        fflush(stdout);
    } else if (argc == 5) {
        ops.on_connected = on_connected;
        ops.on_close = on_close;
        for (left = 0; left < atoi(argv[4]); left++) {
            struct stream *stream = calloc(1, sizeof(*stream));
            NEAT_OPTARGS_DECLARE(NEAT_OPTARGS_MAX);
            NEAT_OPTARGS_INIT();
            NEAT_OPTARG_FLOAT(NEAT_TAG_PRIORITY, 0.1f + 0.1f * (float)(left % 8));
            NEAT_OPTARG_INT(NEAT_TAG_FLOW_GROUP, 1);
            if (stream == NULL)
                fail("no memory");
            stream->number = left;
            ops.userData = stream;
            flow = neat_new_flow(ctx);
            if (neat_set_property(ctx, flow, properties_of("sctp")) || neat_set_operations(ctx, flow, &ops) ||
                neat_open(ctx, flow, argv[2], (uint16_t)atoi(argv[3]), NEAT_OPTARGS, NEAT_OPTARGS_COUNT))
                fail("neat_open");
        }
    } else {
        fprintf(stderr, "usage: %s server PORT | client HOST PORT FLOWS\n", argv[0]);
        return 2;
    }
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    /* Timers that are closing need a round of the loop. */
    neat_start_event_loop(ctx, NEAT_RUN_NOWAIT);
    neat_free_ctx(ctx);
    return failed != 0;
}
