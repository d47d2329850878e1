/*
 * Sends what is typed and prints what comes: terminal TRANSPORT HOST PORT. The terminal is a
 * handle in NEAT's loop.
 */
#include "common.h"

static uv_pipe_t pipe_in;
static uv_tty_t tty_in;
static uv_stream_t *input;
static struct neat_flow_operations *connection;

static void allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char memory[4096];
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(memory, sizeof(memory));
}

static void typed(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    if (n < 0) {
        uv_read_stop(stream);
        if (connection != NULL)
            neat_shutdown(connection->ctx, connection->flow);
    } else if (n > 0 && connection != NULL) {
        NEAT_OPTARGS_DECLARE(1);
        NEAT_OPTARGS_INIT();
        NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, 0);
        if (neat_write(connection->ctx, connection->flow, (unsigned char *)buffer->base, (uint32_t)n, NEAT_OPTARGS,
                       NEAT_OPTARGS_COUNT) != NEAT_OK)
            fail("neat_write");
    }
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[4096];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK) {
        fwrite(buffer, 1, n, stdout);
        fflush(stdout);
    }
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    connection = ops;
    ops->on_readable = on_readable;
    neat_set_operations(ops->ctx, ops->flow, ops);
    uv_read_start(input, allocate, typed);
    return NEAT_OK;
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    connection = NULL;
    uv_close((uv_handle_t *)input, NULL);
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    return neat_close(ops->ctx, ops->flow);
}

int main(int argc, char **argv)
{
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    const char *properties = argc == 4 ? properties_of(argv[1]) : NULL;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s TRANSPORT HOST PORT\n", argv[0]);
        return 2;
    }
    ctx = context();
    if (uv_guess_handle(0) == UV_TTY) {
        uv_tty_init(neat_get_event_loop(ctx), &tty_in, 0, 1);
        input = (uv_stream_t *)&tty_in;
    } else {
        uv_pipe_init(neat_get_event_loop(ctx), &pipe_in, 0);
        uv_pipe_open(&pipe_in, 0);
        input = (uv_stream_t *)&pipe_in;
    }
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    if (neat_set_property(ctx, flow, properties) || neat_set_operations(ctx, flow, &ops) ||
        neat_open(ctx, flow, argv[2], (uint16_t)atoi(argv[3]), NULL, 0))
        fail("neat_open");
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_start_event_loop(ctx, NEAT_RUN_NOWAIT);
    neat_free_ctx(ctx);
    return 0;
}
