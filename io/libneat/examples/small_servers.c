/*
 * The small services of old, by the name of the first argument: small_servers
 * discard|chargen|daytime TRANSPORT PORT
 */
#include "common.h"
#include <time.h>

static const char *service;
static unsigned long long discarded;

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK)
        discarded += n;
    return NEAT_OK;
}

/* RFC 864: lines of 72 characters, each begins with the next one. */
static neat_error_code chargen(struct neat_flow_operations *ops)
{
    unsigned char line[74];
    int i, first = (int)(intptr_t)ops->userData;
    for (i = 0; i < 72; i++)
        line[i] = (unsigned char)(' ' + (first + i) % 95);
    line[72] = '\r';
    line[73] = '\n';
    ops->userData = (void *)(intptr_t)((first + 1) % 95);
    return neat_write(ops->ctx, ops->flow, line, sizeof(line), NULL, 0);
}

static neat_error_code done(struct neat_flow_operations *ops)
{
    return neat_close(ops->ctx, ops->flow);
}

static neat_error_code daytime(struct neat_flow_operations *ops)
{
    time_t now = time(NULL);
    const char *text = ctime(&now);
    ops->on_writable = NULL;
    ops->on_all_written = done;
    neat_set_operations(ops->ctx, ops->flow, ops);
    return neat_write(ops->ctx, ops->flow, (const unsigned char *)text, (uint32_t)strlen(text), NULL, 0);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    (void)ops;
    if (strcmp(service, "discard") == 0) {
        printf("discarded %llu\n", discarded);
        fflush(stdout);
    }
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->userData = NULL;
    ops->on_close = on_close;
    if (strcmp(service, "discard") == 0) {
        ops->on_readable = on_readable;
    } else if (strcmp(service, "chargen") == 0) {
        ops->on_readable = on_readable;
        ops->on_writable = chargen;
    } else {
        ops->on_writable = daytime;
    }
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    return neat_close(ops->ctx, ops->flow);
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
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    struct neat_flow_operations ops;
    uv_poll_t input;
    const char *properties = argc == 4 ? properties_of(argv[2]) : NULL;
    if (properties == NULL) {
        fprintf(stderr, "usage: %s discard|chargen|daytime tcp|sctp|udp PORT\n", argv[0]);
        return 2;
    }
    service = argv[1];
    ctx = context();
    flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    if (neat_set_property(ctx, flow, properties) || neat_set_operations(ctx, flow, &ops) ||
        neat_accept(ctx, flow, (uint16_t)atoi(argv[3]), NULL, 0))
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
