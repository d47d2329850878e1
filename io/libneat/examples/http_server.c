/* Serves the files of a folder: http_server FOLDER PORT [PEM TLSPORT] */
#include "common.h"
#include <sys/stat.h>

struct peer {
    char request[8192];
    uint32_t have;
    char *answer;
    size_t length;
    int keep;
};

static const char *folder;
static neat_error_code on_readable(struct neat_flow_operations *ops);

static void answer(struct peer *peer, const char *status, const char *body, size_t length)
{
    int n;
    peer->answer = malloc(length + 256);
    if (peer->answer == NULL)
        fail("no memory");
    n = snprintf(peer->answer, 256, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: %s\r\n\r\n", status, length,
                 peer->keep ? "keep-alive" : "close");
    memcpy(peer->answer + n, body, length);
    peer->length = (size_t)n + length;
}

static neat_error_code on_all_written(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    free(peer->answer);
    peer->answer = NULL;
    if (!peer->keep)
        return neat_close(ops->ctx, ops->flow);
    peer->have = 0;
    ops->on_all_written = NULL;
    ops->on_readable = on_readable;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_writable(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    ops->on_writable = NULL;
    ops->on_all_written = on_all_written;
    neat_set_operations(ops->ctx, ops->flow, ops);
    if (neat_write(ops->ctx, ops->flow, (unsigned char *)peer->answer, (uint32_t)peer->length, NULL, 0) != NEAT_OK)
        return neat_close(ops->ctx, ops->flow);
    return NEAT_OK;
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    char path[1024], full[2048];
    uint32_t n;
    struct stat about;
    neat_error_code e = neat_read(ops->ctx, ops->flow, (unsigned char *)peer->request + peer->have,
                                  (uint32_t)sizeof(peer->request) - 1 - peer->have, &n, NULL, 0);
    if (e == NEAT_ERROR_WOULD_BLOCK)
        return NEAT_OK;
    if (e != NEAT_OK)
        return neat_close(ops->ctx, ops->flow);
    peer->have += n;
    peer->request[peer->have] = 0;
    if (strstr(peer->request, "\r\n\r\n") == NULL)
        return peer->have + 1 < sizeof(peer->request) ? NEAT_OK : neat_close(ops->ctx, ops->flow);
    peer->keep = strstr(peer->request, "Connection: close") == NULL;
    if (sscanf(peer->request, "GET %1000s HTTP/1.", path) != 1 || strstr(path, "..") != NULL) {
        answer(peer, "400 Bad Request", "bad\n", 4);
    } else {
        size_t length = 0;
        char *file = NULL;
        snprintf(full, sizeof(full), "%s%s", folder, path);
        if (stat(full, &about) == 0 && S_ISREG(about.st_mode))
            file = read_file(full, &length);
        if (file != NULL)
            answer(peer, "200 OK", file, length);
        else
            answer(peer, "404 Not Found", "not here\n", 9);
        free(file);
    }
    ops->on_readable = NULL;
    ops->on_writable = on_writable;
    return neat_set_operations(ops->ctx, ops->flow, ops);
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    struct peer *peer = ops->userData;
    if (peer != NULL)
        free(peer->answer);
    free(peer);
    ops->userData = NULL;
    return NEAT_OK;
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

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    fprintf(stderr, "on_error: %u\n", (unsigned)ops->status);
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
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s FOLDER PORT [PEM TLSPORT]\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    ctx = context();
    memset(&ops, 0, sizeof(ops));
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    flow = neat_new_flow(ctx);
    if (neat_set_property(ctx, flow, properties_of("tcp")) || neat_set_operations(ctx, flow, &ops) ||
        neat_accept(ctx, flow, (uint16_t)atoi(argv[2]), NULL, 0))
        fail("neat_accept");
    if (argc == 5) {
        flow = neat_new_flow(ctx);
        if (neat_set_property(ctx, flow, properties_of("tls")) || neat_set_operations(ctx, flow, &ops) ||
            neat_secure_identity(ctx, flow, argv[3], NEAT_CERT_KEY_PEM) ||
            neat_accept(ctx, flow, (uint16_t)atoi(argv[4]), NULL, 0))
            fail("neat_accept");
    }
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
