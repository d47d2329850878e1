/*
 * Sends a file to a peer: file_transfer receive TRANSPORT PORT FILE | send TRANSPORT HOST PORT
 * FILE
 */
#include "common.h"

static FILE *file;
static unsigned long long moved;
static int status = 1;

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) != NEAT_OK)
        return NEAT_OK;
    moved += n;
    if (fwrite(buffer, 1, n, file) != n)
        fail("the file cannot be written");
    return NEAT_OK;
}

static neat_error_code received_all(struct neat_flow_operations *ops)
{
    status = 0;
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static neat_error_code accepted(struct neat_flow_operations *ops)
{
    ops->on_readable = on_readable;
    ops->on_close = received_all;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_all_written(struct neat_flow_operations *ops)
{
    if (feof(file)) {
        status = 0;
        return neat_close(ops->ctx, ops->flow);
    }
    return NEAT_OK;
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[16384];
    size_t n = fread(buffer, 1, sizeof(buffer), file);
    if (n == 0) {
        ops->on_writable = NULL;
        return neat_set_operations(ops->ctx, ops->flow, ops);
    }
    moved += n;
    return neat_write(ops->ctx, ops->flow, buffer, (uint32_t)n, NULL, 0);
}

static neat_error_code connected(struct neat_flow_operations *ops)
{
    neat_set_qos(ops->ctx, ops->flow, 10);
    if (neat_get_qos(ops->ctx, ops->flow) != 10)
        fail("neat_get_qos");
    ops->on_writable = on_writable;
    ops->on_all_written = on_all_written;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code sent_all(struct neat_flow_operations *ops)
{
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
    neat_stop_event_loop(ops->ctx);
    return NEAT_OK;
}

int main(int argc, char **argv)
{
    int receives = argc == 5 && strcmp(argv[1], "receive") == 0;
    int sends = argc == 6 && strcmp(argv[1], "send") == 0;
    const char *properties = receives || sends ? properties_of(argv[2]) : NULL;
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s receive TRANSPORT PORT FILE | send TRANSPORT HOST PORT FILE\n", argv[0]);
        return 2;
    }
    file = fopen(argv[argc - 1], receives ? "wb" : "rb");
    if (file == NULL)
        fail("the file cannot be opened");
    ctx = context();
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_error = on_error;
    ops.on_connected = receives ? accepted : connected;
    if (sends)
        ops.on_close = sent_all;
    if (neat_set_property(ctx, flow, properties) || neat_set_operations(ctx, flow, &ops))
        fail("properties");
    if (receives ? neat_accept(ctx, flow, (uint16_t)atoi(argv[3]), NULL, 0)
                 : neat_open(ctx, flow, argv[3], (uint16_t)atoi(argv[4]), NULL, 0))
        fail("neat_open or neat_accept");
    if (receives) {
        printf("listening\n");
        fflush(stdout);
    }
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_free_ctx(ctx);
    fclose(file);
    printf("%llu bytes\n", moved);
    return status;
}
