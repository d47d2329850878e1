/*
 * Opens one flow: managed PROPERTIES HOST PORT. Prints what has come of it, and what the properties are then.
 */
#include "../../examples/common.h"

static int done;

static void show(struct neat_flow_operations *ops, const char *name)
{
    char text[64];
    size_t size = sizeof(text);
    if (neat_get_property(ops->ctx, ops->flow, name, text, &size) == NEAT_OK)
        printf(" %s=%s", name, text);
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    printf("connected over %d", ops->transport_protocol);
    show(ops, "transport");
    show(ops, "remote_ip");
    show(ops, "because");
    printf("\n");
    done = 1;
    return neat_close(ops->ctx, ops->flow);
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    printf("error %d\n", (int)ops->status);
    done = 1;
    return neat_close(ops->ctx, ops->flow);
}

int main(int argc, char **argv)
{
    struct neat_ctx *ctx = neat_init_ctx();
    struct neat_flow *flow, *closed;
    struct neat_flow_operations ops;
    int i;

    if (ctx == NULL || argc != 4)
        fail("managed PROPERTIES HOST PORT");
    neat_log_level(ctx, NEAT_LOG_WARNING);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    flow = neat_new_flow(ctx);
    /* One that is closed while the manager is asked about it. */
    closed = neat_new_flow(ctx);
    if (neat_set_property(ctx, flow, argv[1]) != NEAT_OK || neat_set_operations(ctx, flow, &ops) != NEAT_OK ||
        neat_open(ctx, closed, argv[2], (uint16_t)atoi(argv[3]), NULL, 0) != NEAT_OK ||
        neat_open(ctx, flow, argv[2], (uint16_t)atoi(argv[3]), NULL, 0) != NEAT_OK)
        fail("no flow");
    neat_close(ctx, closed);
    for (i = 0; i < 2000 && !done; i++)
        neat_start_event_loop(ctx, NEAT_RUN_ONCE);
    neat_free_ctx(ctx);
    return done ? 0 : 1;
}
