/* The same program on libuv: one handle per flow, allocated by the program, callbacks, one shared read buffer. */
#define _GNU_SOURCE
#include "common.h"
#include <uv.h>

struct flow {
    uv_tcp_t tcp;
    union {
        uv_connect_t connect;
        uv_write_t write;
    } req;
    long long left, object_left;
    size_t pending;
    int64_t opened;
};

static struct args args;
static uv_loop_t *loop;
static struct flow **flows;
static int64_t *delays, start;
static long done, failed, accepted, closed_flows, round_ended;
static long long bytes;
static uv_tcp_t listener;
static uv_pipe_t standard_input;

static void check(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, uv_strerror(result));
        exit(1);
    }
}

static void open_all(uv_connect_cb then) {
    for (long i = 0; i < args.flows; i++) {
        struct flow *f = malloc(sizeof *f);
        flows[i] = f;
        f->left = args.bytes / args.flows;
        f->object_left = args.object;
        if (delays) f->opened = now_ns();
        check("uv_tcp_init", uv_tcp_init(loop, &f->tcp));
        check("uv_tcp_connect", uv_tcp_connect(&f->req.connect, &f->tcp, (const struct sockaddr *)&args.addr, then));
    }
}

static void free_flow(uv_handle_t *h) { free(h); }

static void client_connected(uv_connect_t *req, int status) {
    struct flow *f = (struct flow *)req->handle;
    if (status < 0) failed++;
    else {
        if (delays) delays[done] = now_ns() - f->opened;
        done++;
    }
    if (++round_ended == args.flows) uv_stop(loop);
}

/* Handles are closed outside of uv_run: inside, each close searches the batch of events that is being delivered, which
 * costs libuv thousands of instructions per handle that it does not owe. */
static int client(void) {
    ready(&args);
    flows = calloc((size_t)args.flows, sizeof *flows);
    if (args.delays) delays = calloc((size_t)(args.flows * args.rounds), sizeof *delays);
    start = now_ns();
    for (long r = 0; r < args.rounds; r++) {
        round_ended = 0;
        open_all(client_connected);
        uv_run(loop, UV_RUN_DEFAULT);
        all_open(&args, args.flows);
        for (long i = 0; i < args.flows; i++) uv_close((uv_handle_t *)&flows[i]->tcp, free_flow);
        uv_run(loop, UV_RUN_DEFAULT);
    }
    return say_result("libuv", &args, done, failed, 0, now_ns() - start, delays);
}

static void push(struct flow *f);

static void advance(struct flow *f, size_t n) {
    f->left -= (long long)n;
    f->object_left -= (long long)n;
    if (f->object_left == 0) f->object_left = args.object;
}

static void written(uv_write_t *req, int status) {
    check("write", status);
    struct flow *f = (struct flow *)req->handle;
    advance(f, f->pending);
    push(f);
}

/* uv_try_write while there is room, uv_write for what does not fit: the fewest system calls that libuv allows. */
static void push(struct flow *f) {
    while (f->left > 0) {
        size_t piece = next_piece(f->left, f->object_left);
        uv_buf_t b = uv_buf_init(buffer, (unsigned)piece);
        int n = uv_try_write((uv_stream_t *)&f->tcp, &b, 1);
        if (n == UV_EAGAIN) n = 0;
        check("uv_try_write", n);
        advance(f, (size_t)n);
        if ((size_t)n < piece) {
            f->pending = piece - (size_t)n;
            b = uv_buf_init(buffer, (unsigned)f->pending);
            check("uv_write", uv_write(&f->req.write, (uv_stream_t *)&f->tcp, &b, 1, written));
            return;
        }
    }
    done++;
    uv_close((uv_handle_t *)&f->tcp, free_flow);
}

static void send_connected(uv_connect_t *req, int status) {
    struct flow *f = (struct flow *)req->handle;
    if (status < 0) {
        failed++;
        uv_close((uv_handle_t *)&f->tcp, free_flow);
    } else {
        push(f);
    }
}

static int send_all(void) {
    ready(&args);
    flows = calloc((size_t)args.flows, sizeof *flows);
    start = now_ns();
    open_all(send_connected);
    uv_run(loop, UV_RUN_DEFAULT);
    return say_result("libuv", &args, done, failed, args.bytes / args.flows * done, now_ns() - start, NULL);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *b) {
    (void)h, (void)suggested;
    *b = uv_buf_init(buffer, BUFFER);
}

static void served(uv_handle_t *h) {
    free(h);
    closed_flows++;
    if (args.flows && closed_flows == args.flows * args.rounds) uv_stop(loop);
}

static void got(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    (void)b;
    if (n > 0) bytes += n;
    if (n < 0) {
        if (n != UV_EOF) failed++;
        uv_close((uv_handle_t *)s, served);
    }
}

static void incoming(uv_stream_t *server, int status) {
    check("listen", status);
    if (accepted++ == 0) start = now_ns();
    uv_tcp_t *tcp = malloc(sizeof *tcp);
    check("uv_tcp_init", uv_tcp_init(loop, tcp));
    check("uv_accept", uv_accept(server, (uv_stream_t *)tcp));
    check("uv_read_start", uv_read_start((uv_stream_t *)tcp, give_buffer, got));
    if (accepted == args.flows) all_open(&args, accepted);
}

static void input_ended(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    (void)s, (void)b;
    if (n < 0) uv_stop(loop);
}

static int serve(void) {
    check("uv_tcp_init", uv_tcp_init(loop, &listener));
    check("uv_tcp_bind", uv_tcp_bind(&listener, (const struct sockaddr *)&args.addr, 0));
    check("uv_listen", uv_listen((uv_stream_t *)&listener, BACKLOG, incoming));
    struct sockaddr_storage addr;
    int len = sizeof addr;
    check("uv_tcp_getsockname", uv_tcp_getsockname(&listener, (struct sockaddr *)&addr, &len));
    say_listening(&addr);
    if (args.flows == 0) {
        check("uv_pipe_init", uv_pipe_init(loop, &standard_input, 0));
        check("uv_pipe_open", uv_pipe_open(&standard_input, 0));
        check("uv_read_start", uv_read_start((uv_stream_t *)&standard_input, give_buffer, input_ended));
    }
    uv_run(loop, UV_RUN_DEFAULT);
    return say_result("libuv", &args, closed_flows, failed, bytes, start ? now_ns() - start : 0, NULL);
}

int main(int argc, char **argv) {
    args = parse_args(argc, argv);
    loop = uv_default_loop();
    if (!strcmp(args.mode, "client")) return client();
    if (!strcmp(args.mode, "send")) return send_all();
    if (!strcmp(args.mode, "server") || !strcmp(args.mode, "recv")) return serve();
    usage("unknown mode");
    return 2;
}
