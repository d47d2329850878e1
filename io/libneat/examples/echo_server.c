/* Sends back what it receives: echo_server TRANSPORT PORT [PEM] */
#include "common.h"

struct peer {
    unsigned char buffer[65536];
    uint32_t length;
    int stream;
};

static neat_error_code on_readable(struct neat_flow_operations *ops);

static neat_error_code on_all_written(struct neat_flow_operations *ops)
{
    ops->on_readable = on_readable;
    ops->on_all_written = NULL;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    neat_error_code e;
    NEAT_OPTARGS_DECLARE(NEAT_OPTARGS_MAX);
    NEAT_OPTARGS_INIT();
    if (peer->stream != NEAT_INVALID_STREAM)
        NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, peer->stream);
    e = neat_write(ops->ctx, ops->flow, peer->buffer, peer->length, NEAT_OPTARGS, NEAT_OPTARGS_COUNT);
    if (e != NEAT_OK)
        return neat_close(ops->ctx, ops->flow);
    ops->on_writable = NULL;
    ops->on_all_written = on_all_written;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    neat_error_code e;
    NEAT_OPTARGS_DECLARE(1);
    NEAT_OPTARGS_INIT();
    NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, NEAT_INVALID_STREAM);
    e = neat_read(ops->ctx, ops->flow, peer->buffer, sizeof(peer->buffer), &peer->length, NEAT_OPTARGS,
                  NEAT_OPTARGS_COUNT);
    if (e == NEAT_ERROR_WOULD_BLOCK)
        return NEAT_OK;
    if (e != NEAT_OK) {
        fprintf(stderr, "read: error %u\n", (unsigned)e);
        return neat_close(ops->ctx, ops->flow);
    }
    peer->stream = NEAT_OPTARGS[0].value.integer;
    ops->on_readable = NULL;
    ops->on_writable = on_writable;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    free(ops->userData);
    ops->userData = NULL;
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    if (ops->transport_protocol == 0) {
        neat_stop_event_loop(ops->ctx);
        return NEAT_OK;
    }
    return neat_close(ops->ctx, ops->flow);
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->userData = calloc(1, sizeof(struct peer));
    if (ops->userData == NULL)
        fail("no memory");
    ops->on_readable = on_readable;
    ops->on_close = on_close;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

/* The program ends when its input does. */
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
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    uv_poll_t input;
    const char *properties = argc > 2 ? properties_of(argv[1]) : NULL;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s tcp|sctp|udp|tls|dtls|sctp-dtls PORT [PEM]\n", argv[0]);
        return 2;
    }
    ctx = context();
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    if (neat_set_property(ctx, flow, properties) != NEAT_OK || neat_set_operations(ctx, flow, &ops) != NEAT_OK)
        fail("properties");
    if (argc > 3 && neat_secure_identity(ctx, flow, argv[3], NEAT_CERT_KEY_PEM) != NEAT_OK)
        fail("certificate");
    if (neat_accept(ctx, flow, (uint16_t)atoi(argv[2]), NULL, 0) != NEAT_OK)
        fail("neat_accept");
    if (uv_poll_init(neat_get_event_loop(ctx), &input, 0) == 0) {
        input.data = ctx;
        uv_poll_start(&input, UV_READABLE, on_input);
    }
    printf("listening\n");
    fflush(stdout);
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_free_ctx(ctx);
    return 0;
}
