/*
 * Calls every function in every callback, on the flow of the callback and on others, with good and with bad arguments. Nothing may
 * crash, leak or hang: every_call TRANSPORT PORT [PEM]. Each round frees the context in another callback.
 */
#include "../../examples/common.h"

enum { CONNECTED, READABLE, WRITABLE, ALL_WRITTEN, CLOSE, ERROR_CB, TIMEOUT, KINDS };
static const char *const names[KINDS] = {"connected", "readable", "writable", "all_written", "close", "error", "timeout"};

static int called[KINDS], budget, free_in, freed, nested;
static const char *properties, *pem;
static uint16_t port;
/* Outlives all timers. */
static struct neat_flow_operations timer_ops;

static void log_nothing(struct neat_ctx *ctx)
{
    neat_log_level(ctx, NEAT_LOG_OFF);
    neat_log_file(ctx, "/dev/null");
    neat_log_file(ctx, NULL);
}

static void bad_arguments(struct neat_ctx *ctx, struct neat_flow *flow)
{
    uint32_t n;
    size_t size = 0;
    unsigned char byte = 0;
    if (neat_read(ctx, NULL, &byte, 1, &n, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_read(NULL, flow, &byte, 1, &n, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_read(ctx, flow, NULL, 1, &n, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_read(ctx, flow, &byte, 1, NULL, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_write(ctx, flow, NULL, 1, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_write(ctx, flow, &byte, 1, NULL, 1) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_open(ctx, flow, NULL, 1, NULL, 0) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_set_operations(ctx, flow, NULL) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_set_property(ctx, flow, NULL) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_set_property(ctx, flow, "{") != NEAT_ERROR_BAD_ARGUMENT ||
        neat_get_property(ctx, flow, NULL, NULL, &size) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_get_property(ctx, flow, "x", NULL, NULL) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_secure_identity(ctx, flow, NULL, NEAT_CERT_PEM) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_get_stats(ctx, NULL) != NEAT_ERROR_BAD_ARGUMENT ||
        neat_start_event_loop(ctx, (neat_run_mode)7) != NEAT_ERROR_BAD_ARGUMENT || neat_get_backend_fd(NULL) != -1)
        fail("a bad argument was taken");
    neat_free_ctx(NULL);
    neat_stop_event_loop(NULL);
    neat_freelpaddrs(NULL);
    neat_get_max_buffer_sizes(NULL, NULL, NULL);
    set_initiate_timer(ctx, flow, NULL, 1.0f);
    set_ops_user_data(NULL, NULL);
    if (get_ops_user_data(NULL) != NULL || neat_get_event_loop(NULL) != NULL || neat_new_flow(NULL) != NULL)
        fail("NULL is something");
}

static void everything(struct neat_flow_operations *ops, int kind)
{
    struct neat_ctx *ctx = ops->ctx;
    struct neat_flow *flow = ops->flow, *other;
    unsigned char buffer[300] = {0};
    char *stats = NULL, stack[32];
    uint32_t n = 0;
    size_t size = sizeof(stack);
    struct sockaddr *addrs = NULL;
    int a = 0, b = 0;
    struct neat_flow_operations copy = *ops;
    called[kind]++;
    if (freed || nested > 3 || budget-- <= 0)
        return;
    nested++;
    log_nothing(ctx);
    bad_arguments(ctx, flow);
    other = neat_new_flow(ctx);
    neat_set_property(ctx, other, properties);
    neat_set_property(ctx, other, "");
    neat_set_operations(ctx, other, &copy);
    if (pem != NULL)
        neat_secure_identity(ctx, other, pem, NEAT_CERT_KEY_PEM);
    if (budget % 3 == 0)
        neat_accept(ctx, other, (uint16_t)(port + 1 + budget % 50), NULL, 0);
    else
        neat_open(ctx, other, "127.0.0.1", budget % 3 == 1 ? port : 1, NULL, 0);
    set_initiate_timer(ctx, other, &timer_ops, 0.001f);
    neat_set_operations(ctx, flow, ops);
    neat_get_property(ctx, flow, "transport", stack, &size);
    size = sizeof(stack);
    neat_get_stack(flow, stack, &size);
    neat_set_qos(ctx, flow, 46);
    neat_get_qos(ctx, flow);
    neat_set_ecn(ctx, flow, 1);
    neat_set_low_watermark(ctx, flow, 10000);
    neat_set_checksum_coverage(ctx, flow, 8, 8);
    neat_change_timeout(ctx, flow, 30);
    neat_set_primary_dest(ctx, flow, "127.0.0.1");
    neat_get_socket_fd(flow);
    neat_get_max_buffer_sizes(flow, &a, &b);
    if (neat_getlpaddrs(ctx, flow, &addrs, 1) > 0)
        neat_freelpaddrs(addrs);
    if (neat_getlpaddrs(ctx, flow, &addrs, 0) > 0)
        neat_freelpaddrs(addrs);
    neat_send_remote_parameters(ctx, flow, NULL);
    if (neat_get_stats(ctx, &stats) == NEAT_OK)
        free(stats);
    neat_get_backend_fd(ctx);
    neat_get_backend_timeout(ctx);
    neat_start_event_loop(ctx, NEAT_RUN_NOWAIT);
    set_ops_user_data(ops, get_ops_user_data(ops));
    neat_read(ctx, flow, buffer, sizeof(buffer), &n, NULL, 0);
    neat_write(ctx, flow, buffer, sizeof(buffer), NULL, 0);
    switch (budget % 5) {
    case 0:
        neat_shutdown(ctx, flow);
        break;
    case 1:
        neat_close(ctx, flow);
        neat_close(ctx, flow);
        break;
    case 2:
        neat_abort(ctx, flow);
        break;
    default:
        break;
    }
    neat_read(ctx, flow, buffer, sizeof(buffer), &n, NULL, 0);
    neat_write(ctx, flow, buffer, sizeof(buffer), NULL, 0);
    neat_set_operations(ctx, flow, ops);
    if (budget % 7 == 0)
        neat_close(ctx, other);
    neat_stop_event_loop(ctx);
    nested--;
    if (kind == free_in && called[kind] > 3 && !freed && nested == 0) {
        freed = 1;
        neat_free_ctx(ctx);
        neat_read(ctx, flow, buffer, sizeof(buffer), &n, NULL, 0);
        neat_close(ctx, flow);
    }
}

#define CALLBACK(name, kind)                                            \
    static neat_error_code name(struct neat_flow_operations *ops)       \
    {                                                                   \
        everything(ops, kind);                                          \
        return NEAT_OK;                                                 \
    }
CALLBACK(on_readable, READABLE)
CALLBACK(on_writable, WRITABLE)
CALLBACK(on_all_written, ALL_WRITTEN)

/* Accepted flows have not inherited all of them. */
static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->on_all_written = on_all_written;
    everything(ops, CONNECTED);
    return NEAT_OK;
}
CALLBACK(on_close, CLOSE)
CALLBACK(on_error, ERROR_CB)
CALLBACK(on_timeout, TIMEOUT)

int main(int argc, char **argv)
{
    int i;
    properties = argc > 2 ? properties_of(argv[1]) : NULL;
    if (properties == NULL)
        return 2;
    port = (uint16_t)atoi(argv[2]);
    pem = argc > 3 ? argv[3] : NULL;
    for (free_in = -1; free_in < KINDS; free_in++) {
        struct neat_ctx *ctx = context();
        struct neat_flow *flow = neat_new_flow(ctx);
        struct neat_flow_operations ops;
        budget = 60;
        freed = nested = 0;
        memset(&ops, 0, sizeof(ops));
        ops.on_connected = on_connected;
        ops.on_readable = on_readable;
        ops.on_writable = on_writable;
        ops.on_all_written = on_all_written;
        ops.on_close = on_close;
        ops.on_error = on_error;
        ops.on_timeout = on_timeout;
        ops.on_aborted = on_error;
        timer_ops = ops;
        log_nothing(ctx);
        neat_set_property(ctx, flow, properties);
        neat_set_operations(ctx, flow, &ops);
        if (pem != NULL)
            neat_secure_identity(ctx, flow, pem, NEAT_CERT_KEY_PEM);
        neat_accept(ctx, flow, port, NULL, 0);
        for (i = 0; i < 5; i++) {
            flow = neat_new_flow(ctx);
            neat_set_property(ctx, flow, properties);
            neat_set_operations(ctx, flow, &ops);
            neat_open(ctx, flow, "127.0.0.1", port, NULL, 0);
        }
        for (i = 0; i < 500 && !freed && budget > 0; i++) {
            neat_start_event_loop(ctx, i % 100 == 99 ? NEAT_RUN_ONCE : NEAT_RUN_NOWAIT);
            if (!freed)
                usleep(1000);
        }
        if (!freed) {
            budget = 0;
            neat_free_ctx(ctx);
        }
    }
    for (i = 0; i < KINDS; i++)
        printf("%s: %d\n", names[i], called[i]);
    for (i = 0; i < ERROR_CB; i++)
        if (called[i] == 0)
            fail("a callback was never called");
    printf("every call in every callback\n");
    return 0;
}
