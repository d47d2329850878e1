/* What functions answer and callbacks report, one case after the other: behaviour PORT PEM */
#include "../../examples/common.h"

#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            printf("%s, line %d: wrong: %s\n", current, __LINE__, #what);  \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static const char *current;
static uint16_t port;

/* What has been reported, a letter each: C connected, E error, R readable, A all written, a aborted, X close, T time-out. */
struct record {
    char said[256];
    unsigned long status;
    struct neat_flow_operations *ops;
    unsigned long long got;
    int stops;
};
static struct record client, server;

static void say(struct record *r, char c, struct neat_flow_operations *ops)
{
    size_t n = strlen(r->said);
    if (n + 1 < sizeof(r->said)) {
        r->said[n] = c;
        r->said[n + 1] = 0;
    }
    r->ops = ops;
    if (c == 'E')
        r->status = (unsigned long)ops->status;
    CHECK(ops->ctx != NULL && ops->flow != NULL);
    if (r->stops == c)
        neat_stop_event_loop(ops->ctx);
}

static struct record *of(struct neat_flow_operations *ops)
{
    return ops->userData;
}

static neat_error_code on_all_written(struct neat_flow_operations *ops)
{
    say(of(ops), 'A', ops);
    return NEAT_OK;
}

static neat_error_code on_aborted(struct neat_flow_operations *ops)
{
    say(of(ops), 'a', ops);
    return NEAT_OK;
}

static neat_error_code on_timeout(struct neat_flow_operations *ops)
{
    say(of(ops), 'T', ops);
    return NEAT_OK;
}

static neat_error_code on_connected(struct neat_flow_operations *ops)
{
    ops->on_all_written = on_all_written;
    ops->on_aborted = on_aborted;
    neat_set_operations(ops->ctx, ops->flow, ops);
    say(of(ops), 'C', ops);
    return NEAT_OK;
}

static neat_error_code on_error(struct neat_flow_operations *ops)
{
    say(of(ops), 'E', ops);
    return NEAT_OK;
}

static neat_error_code on_readable(struct neat_flow_operations *ops)
{
    static unsigned char buffer[65536];
    uint32_t n;
    if (neat_read(ops->ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK) {
        of(ops)->got += n;
        say(of(ops), 'R', ops);
    }
    return NEAT_OK;
}

static neat_error_code on_close(struct neat_flow_operations *ops)
{
    say(of(ops), 'X', ops);
    return NEAT_OK;
}

static struct neat_flow *flow_of(struct neat_ctx *ctx, struct record *r, const char *properties)
{
    struct neat_flow_operations ops;
    struct neat_flow *flow = neat_new_flow(ctx);
    memset(&ops, 0, sizeof(ops));
    memset(r, 0, sizeof(*r));
    ops.userData = r;
    ops.on_connected = on_connected;
    ops.on_error = on_error;
    ops.on_close = on_close;
    ops.on_readable = on_readable;
    CHECK(neat_set_operations(ctx, flow, &ops) == NEAT_OK);
    CHECK(properties == NULL || neat_set_property(ctx, flow, properties) == NEAT_OK);
    return flow;
}

/* Rounds of the loop, of a millisecond each. */
static void spin(struct neat_ctx *ctx, int rounds)
{
    if (getenv("NEAT_VALGRIND") != NULL)
        rounds *= 20;
    while (rounds-- > 0) {
        neat_start_event_loop(ctx, NEAT_RUN_NOWAIT);
        usleep(1000);
    }
}

static struct neat_ctx *quiet(void)
{
    struct neat_ctx *ctx = context();
    neat_log_level(ctx, NEAT_LOG_OFF);
    return ctx;
}

static void fails_with(const char *name, const char *properties, const char *host, uint16_t to, unsigned long status)
{
    struct neat_ctx *ctx = quiet();
    struct neat_flow *flow = flow_of(ctx, &client, properties);
    current = name;
    client.stops = 'E';
    CHECK(neat_open(ctx, flow, host, to, NULL, 0) == NEAT_OK);
    CHECK(neat_open(ctx, flow, host, to, NULL, 0) == NEAT_ERROR_BAD_ARGUMENT);
    CHECK(strcmp(client.said, "") == 0);
    neat_start_event_loop(ctx, NEAT_RUN_DEFAULT);
    CHECK(strcmp(client.said, "E") == 0 && client.status == status);
    spin(ctx, 20);
    CHECK(strcmp(client.said, "E") == 0);
    CHECK(neat_close(ctx, flow) == NEAT_OK && strcmp(client.said, "EX") == 0);
    CHECK(neat_close(ctx, flow) == NEAT_OK && strcmp(client.said, "EX") == 0);
    neat_free_ctx(ctx);
    CHECK(strcmp(client.said, "EX") == 0);
}

static struct neat_ctx *pair(const char *properties, const char *pem)
{
    struct neat_ctx *ctx = quiet();
    struct neat_flow *listener = flow_of(ctx, &server, properties);
    if (pem != NULL)
        CHECK(neat_secure_identity(ctx, listener, pem, NEAT_CERT_KEY_PEM) == NEAT_OK);
    CHECK(neat_accept(ctx, listener, ++port, NULL, 0) == NEAT_OK);
    client.stops = 'C';
    CHECK(neat_open(ctx, flow_of(ctx, &client, properties), "127.0.0.1", port, NULL, 0) == NEAT_OK);
    /* A busy machine takes longer than the rounds that are enough on a quiet one. */
    for (int i = 0; i < 2000 && client.said[0] == '\0'; i++)
        spin(ctx, 1);
    spin(ctx, 50);
    CHECK(client.said[0] == 'C');
    return ctx;
}

static void a_listener_fails(const char *pem)
{
    struct neat_ctx *ctx = quiet(), *other = quiet();
    struct neat_flow *flow = flow_of(ctx, &server, properties_of("tcp"));
    current = "listeners";
    CHECK(neat_accept(ctx, flow, ++port, NULL, 0) == NEAT_OK);
    flow = flow_of(other, &client, properties_of("tcp"));
    CHECK(neat_accept(other, flow, port, NULL, 0) == NEAT_OK);
    spin(other, 5);
    CHECK(strcmp(client.said, "E") == 0 && client.status == NEAT_ERROR_IO);
    flow = flow_of(other, &client, properties_of("tls"));
    CHECK(neat_accept(other, flow, ++port, NULL, 0) == NEAT_OK);
    spin(other, 5);
    CHECK(strcmp(client.said, "E") == 0 && client.status == NEAT_ERROR_SECURITY);
    flow = flow_of(other, &client, properties_of("tls"));
    CHECK(neat_secure_identity(other, flow, "/nonexistent", NEAT_CERT_KEY_PEM) == NEAT_OK);
    CHECK(neat_accept(other, flow, port, NULL, 0) == NEAT_OK);
    spin(other, 5);
    CHECK(strcmp(client.said, "E") == 0 && client.status == NEAT_ERROR_SECURITY);
    flow = flow_of(other, &client, NULL);
    CHECK(neat_accept(other, flow, 0, NULL, 0) == NEAT_OK);
    spin(other, 5);
    CHECK(strcmp(client.said, "E") == 0 && client.status == NEAT_ERROR_BAD_ARGUMENT);
    neat_free_ctx(other);
    neat_free_ctx(ctx);
    (void)pem;
}

static void closing(void)
{
    static unsigned char byte[1000];
    struct neat_ctx *ctx;
    struct neat_flow *flow;
    uint32_t n;
    current = "closing while connecting";
    ctx = quiet();
    flow = flow_of(ctx, &client, properties_of("tcp"));
    CHECK(neat_open(ctx, flow, "localhost", port, NULL, 0) == NEAT_OK);
    CHECK(neat_close(ctx, flow) == NEAT_OK && strcmp(client.said, "X") == 0);
    spin(ctx, 20);
    CHECK(strcmp(client.said, "X") == 0);
    neat_free_ctx(ctx);

    current = "shutdown";
    ctx = pair(properties_of("tcp"), NULL);
    CHECK(neat_write(ctx, client.ops->flow, byte, sizeof(byte), NULL, 0) == NEAT_OK);
    CHECK(neat_shutdown(ctx, client.ops->flow) == NEAT_OK);
    CHECK(neat_write(ctx, client.ops->flow, byte, 1, NULL, 0) == NEAT_ERROR_IO);
    spin(ctx, 30);
    CHECK(strcmp(client.said, "CAX") == 0 && server.got == sizeof(byte));
    CHECK(strcmp(server.said, "CRX") == 0);
    neat_free_ctx(ctx);
    CHECK(strcmp(server.said, "CRXX") == 0);

    current = "abort";
    ctx = pair(properties_of("tcp"), NULL);
    CHECK(neat_abort(ctx, client.ops->flow) == NEAT_OK && strcmp(client.said, "CX") == 0);
    CHECK(neat_read(ctx, client.ops->flow, byte, 1, &n, NULL, 0) != NEAT_OK && n == 0);
    spin(ctx, 30);
    CHECK(strcmp(server.said, "CaE") == 0 && server.status == NEAT_ERROR_INTERNAL);
    neat_free_ctx(ctx);
    CHECK(strcmp(server.said, "CaEXX") == 0);
}

static void properties_of_flows(void)
{
    struct neat_ctx *ctx = pair(properties_of("tcp"), NULL);
    char text[64];
    int64_t number = 0;
    size_t size = sizeof(text);
    struct sockaddr *addrs;
    int sending = 0, receiving = 0;
    char *stats = NULL;
    current = "properties";
    CHECK(neat_get_property(ctx, server.ops->flow, "transport", text, &size) == NEAT_OK);
    CHECK(strcmp(text, "TCP") == 0 && size == 3);
    size = 3;
    CHECK(neat_get_property(ctx, server.ops->flow, "transport", text, &size) == NEAT_ERROR_MESSAGE_TOO_BIG && size == 4);
    size = sizeof(text);
    CHECK(neat_get_property(ctx, server.ops->flow, "address", text, &size) == NEAT_OK);
    CHECK(strcmp(text, "127.0.0.1") == 0);
    size = sizeof(number);
    CHECK(neat_get_property(ctx, server.ops->flow, "port", &number, &size) == NEAT_OK && number == port && size == 8);
    CHECK(neat_get_property(ctx, server.ops->flow, "absent", text, &size) == NEAT_ERROR_UNABLE);
    memset(text, 'x', sizeof(text));
    size = sizeof(text);
    CHECK(neat_get_stack(client.ops->flow, text, &size) == NEAT_OK && strcmp(text, "TCP") == 0);
    CHECK(client.ops->transport_protocol == NEAT_STACK_TCP && server.ops->transport_protocol == NEAT_STACK_TCP);
    CHECK(neat_getlpaddrs(ctx, client.ops->flow, &addrs, 0) == 1 && addrs->sa_family == AF_INET);
    CHECK(ntohs(((struct sockaddr_in *)(void *)addrs)->sin_port) == port);
    neat_freelpaddrs(addrs);
    CHECK(neat_get_socket_fd(client.ops->flow) > 2);
    neat_get_max_buffer_sizes(client.ops->flow, &sending, &receiving);
    CHECK(sending > 0 && receiving > 0);
    CHECK(neat_set_qos(ctx, client.ops->flow, 46) == NEAT_OK && neat_get_qos(ctx, client.ops->flow) == 46);
    {
        int tos = 0;
        socklen_t length = sizeof(tos);
        CHECK(getsockopt(neat_get_socket_fd(client.ops->flow), IPPROTO_IP, 1 /* IP_TOS */, &tos, &length) == 0);
        CHECK(tos >> 2 == 46);
    }
    CHECK(neat_set_low_watermark(ctx, client.ops->flow, 20000) == NEAT_OK);
    CHECK(neat_change_timeout(ctx, client.ops->flow, 30) == NEAT_OK);
    CHECK(neat_change_timeout(ctx, client.ops->flow, 0xffffffffu) == NEAT_ERROR_BAD_ARGUMENT);
    CHECK(neat_set_primary_dest(ctx, client.ops->flow, "127.0.0.1") == NEAT_ERROR_UNABLE);
    CHECK(neat_set_checksum_coverage(ctx, client.ops->flow, 0, 0) == NEAT_ERROR_UNABLE);
    CHECK(neat_send_remote_parameters(ctx, client.ops->flow, NULL) == NEAT_ERROR_UNABLE);
    CHECK(neat_get_stats(ctx, &stats) == NEAT_OK && strstr(stats, "\"snd_cwnd\"") != NULL);
    free(stats);
    neat_free_ctx(ctx);
}

static void messages(void)
{
    static unsigned char big[70000], buffer[3000];
    const char *udp = "{\"transport\": {\"value\": \"UDP\"}, \"transport_type\": {\"value\": \"message\"}}";
    struct neat_ctx *ctx = pair(udp, NULL);
    struct neat_flow_operations *ops = client.ops;
    uint32_t n = 7;
    NEAT_OPTARGS_DECLARE(2);
    NEAT_OPTARGS_INIT();
    current = "messages";
    ops->on_readable = NULL;
    neat_set_operations(ctx, ops->flow, ops);
    CHECK(neat_write(ctx, ops->flow, big, sizeof(big), NULL, 0) == NEAT_ERROR_MESSAGE_TOO_BIG);
    CHECK(neat_write(ctx, ops->flow, big, 10, NULL, 0) == NEAT_OK);
    spin(ctx, 30);
    CHECK(server.got == 10);
    CHECK(neat_write(ctx, server.ops->flow, big, 2000, NULL, 0) == NEAT_OK);
    CHECK(neat_write(ctx, server.ops->flow, big, 0, NULL, 0) == NEAT_OK);
    spin(ctx, 30);
    CHECK(neat_read(ctx, ops->flow, buffer, 1999, &n, NULL, 0) == NEAT_ERROR_MESSAGE_TOO_BIG && n == 0);
    NEAT_OPTARG_INT(NEAT_TAG_TRANSPORT_STACK, 0);
    CHECK(neat_read(ctx, ops->flow, buffer, sizeof(buffer), &n, NEAT_OPTARGS, NEAT_OPTARGS_COUNT) == NEAT_OK);
    CHECK(n == 2000 && NEAT_OPTARGS[0].value.integer == NEAT_STACK_UDP);
    CHECK(neat_read(ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_OK && n == 0);
    CHECK(neat_read(ctx, ops->flow, buffer, sizeof(buffer), &n, NULL, 0) == NEAT_ERROR_WOULD_BLOCK);
    NEAT_OPTARGS_RESET();
    NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, -2);
    CHECK(neat_write(ctx, ops->flow, big, 10, NEAT_OPTARGS, NEAT_OPTARGS_COUNT) == NEAT_ERROR_BAD_ARGUMENT);
    CHECK(neat_set_checksum_coverage(ctx, ops->flow, 0, 0) == NEAT_OK);
    CHECK(neat_set_ecn(ctx, ops->flow, 2) == NEAT_OK);
    neat_free_ctx(ctx);
}

static int ticks;

static void tick(uv_timer_t *timer)
{
    if (++ticks == 5)
        uv_close((uv_handle_t *)timer, NULL);
}

static void loops(void)
{
    struct neat_ctx *ctx = quiet();
    uv_loop_t *loop = neat_get_event_loop(ctx);
    struct neat_flow *flow = flow_of(ctx, &client, properties_of("tcp"));
    struct neat_flow_operations timed;
    uv_timer_t timer;
    current = "loops";
    CHECK(neat_get_backend_fd(ctx) >= 0 && neat_get_backend_timeout(ctx) <= 1000);
    neat_stop_event_loop(ctx);
    CHECK(neat_start_event_loop(ctx, NEAT_RUN_DEFAULT) == NEAT_OK);
    CHECK(neat_start_event_loop(ctx, NEAT_RUN_ONCE) == NEAT_OK);
    /* A flow to where nothing answers: the timer comes first. */
    memset(&timed, 0, sizeof(timed));
    timed.userData = &client;
    timed.on_timeout = on_timeout;
    CHECK(neat_open(ctx, flow, "192.0.2.1", 9, NULL, 0) == NEAT_OK);
    set_initiate_timer(ctx, flow, &timed, 0.01f);
    spin(ctx, 40);
    CHECK(client.said[0] == 'T' || strcmp(client.said, "E") == 0);
    /* The loop goes on without the context, for what the program has in it. */
    CHECK(uv_timer_init(loop, &timer) == 0 && uv_timer_start(&timer, tick, 1, 1) == 0);
    timer.data = NULL;
    neat_free_ctx(ctx);
    CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0 && ticks == 5);
    CHECK(uv_loop_close(loop) == 0);
}

int main(int argc, char **argv)
{
    char name[300];
    if (argc != 3)
        return 2;
    port = (uint16_t)atoi(argv[1]);
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    fails_with("refused", properties_of("tcp"), "127.0.0.1", 1, NEAT_ERROR_UNABLE);
    fails_with("no such name", properties_of("tcp"), "nothing.invalid", 80, NEAT_ERROR_DNS);
    fails_with("a name that is too long", properties_of("tcp"), name, 80, NEAT_ERROR_BAD_ARGUMENT);
    fails_with("port 0", properties_of("tcp"), "127.0.0.1", 0, NEAT_ERROR_BAD_ARGUMENT);
    fails_with("no such transport", "{\"transport\": {\"value\": \"MPTCP\"}}", "127.0.0.1", 1, NEAT_ERROR_UNABLE);
    fails_with("WebRTC", "{\"transport\": {\"value\": \"WEBRTC\"}}", "127.0.0.1", 1, NEAT_ERROR_UNABLE);
    fails_with("messages over TCP", "{\"transport\": {\"value\": \"TCP\"}, \"transport_type\": {\"value\": \"message\"}}",
               "127.0.0.1", 1, NEAT_ERROR_UNABLE);
    a_listener_fails(argv[2]);
    closing();
    properties_of_flows();
    messages();
    loops();
    printf("as described\n");
    return 0;
}
