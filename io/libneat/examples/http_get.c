/*
 * Gets a page over several flows at once: http_get TRANSPORT HOST PORT PATH [FLOWS]. Writes the
 * first answer to standard output.
 */
#include "common.h"

struct request {
    int number;
    int answered;
};

static char text[4096];
static int left, failed;

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[32768];
    struct request *request = ops->userData;
    uint32_t n;
    neat_error_code e;
    NEAT_OPTARGS_DECLARE(NEAT_OPTARGS_MAX);
    NEAT_OPTARGS_INIT();
    NEAT_OPTARG_INT(NEAT_TAG_TRANSPORT_STACK, 0);
    e = neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NEAT_OPTARGS, NEAT_OPTARGS_COUNT);
    if (e == NEAT_ERROR_WOULD_BLOCK)
        return NEAT_OK;
    if (e != NEAT_OK)
        fail("neat_read");
    if (NEAT_OPTARGS[0].value.integer != ops->transport_protocol)
        fail("the transport of what was read is not the flow's");
    if (n > 0)
        request->answered = 1;
    if (request->number == 0)
        fwrite(buffer, 1, n, stdout);
    return NEAT_OK;
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    ops->on_writable = NULL;
    neat_set_operations(ops->ctx, ops->flow, ops);
    if (neat_write(ops->ctx, ops->flow, (unsigned char *)text, (uint32_t)strlen(text), NULL, 0) != NEAT_OK)
        fail("neat_write");
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->on_readable = on_readable;
    ops->on_writable = on_writable;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    struct request *request = ops->userData;
    failed += !request->answered;
    free(request);
    if (--left == 0)
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
    struct neat_flow_operations ops;
    const char *properties = argc > 4 ? properties_of(argv[1]) : NULL;
    int i, flows = argc > 5 ? atoi(argv[5]) : 1;
    if (properties == NULL || flows < 1) {
        fprintf(stderr, "usage: %s tcp|tls|sctp HOST PORT PATH [FLOWS]\n", argv[0]);
        return 2;
    }
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[4], argv[2]);
    ctx = context();
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    for (i = 0; i < flows; i++) {
        struct neat_flow *flow = neat_new_flow(ctx);
        struct request *request = calloc(1, sizeof(*request));
        if (flow == NULL || request == NULL)
            fail("no memory");
        request->number = i;
        ops.userData = request;
        left++;
        if (neat_set_property(ctx, flow, properties) != NEAT_OK || neat_set_operations(ctx, flow, &ops) != NEAT_OK ||
            neat_open(ctx, flow, argv[2], (uint16_t)atoi(argv[3]), NULL, 0) != NEAT_OK)
            fail("neat_open");
    }
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    neat_free_ctx(ctx);
    return failed != 0;
}
