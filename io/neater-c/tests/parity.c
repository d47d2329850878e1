/* Runs one scenario of interop/parity/scenarios.toml from neater.h: reads its script, a command
 * on each line, from standard input, and prints what each object saw. The language is described
 * at the top of that file.
 *
 *     parity < SCRIPT */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <neater.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OBJECTS 32
#define WORDS 24
#define EVENTS 256

enum kind { LISTENER = 1, CONNECTION, GROUP, HOLE };

struct object {
    enum kind kind;
    char name[32];
    neater_listener *listener;
    neater_connection *connection;
    neater_group *group;
    uint16_t port;
    /* What it saw, and how much of that was waited for. */
    char *events[EVENTS];
    int count, cursor;
    /* Connections that a listener or group received, and that have no name yet. */
    neater_connection *received[16];
    int received_count, received_taken;
};

static neater_context *context;
static neater_security_parameters *own;
static struct object objects[OBJECTS];
static int object_count, line_number;
static const char *line_text = "";

static void fail(const char *what, const char *more)
{
    printf("FAILED line %d (%s): %s %s\n", line_number, line_text, what, more ? more : "");
    fflush(stdout);
    exit(1);
}

static const char *last_words(void)
{
    return neater_error_text(neater_last_error());
}

static struct object *find(const char *name)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (!strcmp(objects[i].name, name))
            return &objects[i];
    return NULL;
}

static struct object *named(const char *name)
{
    struct object *o = find(name);
    if (!o)
        fail("there is no object", name);
    return o;
}

static struct object *add(enum kind kind, const char *name)
{
    struct object *o;
    if (object_count == OBJECTS || find(name))
        fail("a name twice, or too many", name);
    o = &objects[object_count++];
    o->kind = kind;
    snprintf(o->name, sizeof o->name, "%s", name);
    return o;
}

/* The name of a status as scripts have it: in small letters, without NEATER_ERROR_. */
static const char *status_name(int32_t status)
{
    switch (status) {
    case NEATER_OK: return "ok";
    case NEATER_ERROR_INVALID_ARGUMENT: return "invalid_argument";
    case NEATER_ERROR_NOT_FOUND: return "not_found";
    case NEATER_ERROR_INVALID_VALUE: return "invalid_value";
    case NEATER_ERROR_PARSE: return "parse";
    case NEATER_ERROR_SECURITY: return "security";
    case NEATER_ERROR_STATE: return "state";
    case NEATER_ERROR_CLOSED: return "closed";
    case NEATER_ERROR_MESSAGE_TOO_LARGE: return "message_too_large";
    case NEATER_ERROR_AFTER_FINAL: return "after_final";
    case NEATER_ERROR_EXPIRED: return "expired";
    case NEATER_ERROR_UNSUPPORTED: return "unsupported";
    case NEATER_ERROR_INVALID_CONFIGURATION: return "invalid_configuration";
    case NEATER_ERROR_NO_CANDIDATES: return "no_candidates";
    case NEATER_ERROR_RESOLUTION_FAILED: return "resolution_failed";
    case NEATER_ERROR_ESTABLISHMENT_FAILED: return "establishment_failed";
    case NEATER_ERROR_ESTABLISHMENT_TIMEOUT: return "establishment_timeout";
    case NEATER_ERROR_CANCELLED: return "cancelled";
    case NEATER_ERROR_NETWORK: return "network";
    case NEATER_ERROR_TLS: return "tls";
    case NEATER_ERROR_QUIC: return "quic";
    case NEATER_ERROR_SCTP: return "sctp";
    case NEATER_ERROR_STREAM_RESET: return "stream_reset";
    case NEATER_ERROR_FRAMER: return "framer";
    case NEATER_ERROR_ABORTED: return "aborted";
    case NEATER_ERROR_TIMED_OUT: return "timed_out";
    case NEATER_ERROR_RESET: return "reset";
    default: return "other";
    }
}

static void note(struct object *o, const char *text)
{
    if (o->count == EVENTS)
        fail("too many events", o->name);
    o->events[o->count] = malloc(strlen(text) + 1);
    strcpy(o->events[o->count++], text);
}

static struct object *of_event(const neater_event *event)
{
    int i;
    for (i = 0; i < object_count; i++) {
        struct object *o = &objects[i];
        if ((event->connection && o->connection == event->connection) ||
            (event->listener && o->listener == event->listener) || (event->group && o->group == event->group))
            return o;
    }
    return NULL;
}

static void take(neater_event *event)
{
    struct object *o = of_event(event);
    char text[512];
    if (!o) {
        /* Of a connection that has no name yet there is nothing to be noted. */
        return;
    }
    switch (event->kind) {
    case NEATER_EVENT_WRITABLE:
    case NEATER_EVENT_PATH_CHANGE:
    case NEATER_EVENT_SOFT_ERROR:
        return;
    case NEATER_EVENT_CONNECTION_RECEIVED:
        o->received[o->received_count++ % 16] = neater_event_take_connection(event);
        note(o, "connection_received");
        return;
    case NEATER_EVENT_RECEIVED:
    case NEATER_EVENT_RECEIVED_PARTIAL: {
        const neater_message *message = event->data.received.message;
        neater_message_info info;
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        neater_message_get_info(message, &info);
        snprintf(text, sizeof text, "%s %.*s%s", neater_event_name(event->kind), (int)neater_message_length(message),
                 (const char *)neater_message_data(message), info.early_data ? " early" : "");
        note(o, text);
        return;
    }
    case NEATER_EVENT_ESTABLISHMENT_ERROR:
    case NEATER_EVENT_CONNECTION_ERROR:
    case NEATER_EVENT_RECEIVE_ERROR:
    case NEATER_EVENT_SEND_ERROR:
    case NEATER_EVENT_GROUP_ENDED:
        snprintf(text, sizeof text, "%s %s", neater_event_name(event->kind),
                 status_name(neater_error_status(event->data.error.error)));
        note(o, text);
        return;
    default:
        note(o, neater_event_name(event->kind));
    }
}

/* Drives for a time, or until something came. */
static int drive(int milliseconds)
{
    neater_event event;
    int64_t n;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    n = neater_poll_event(context, &event, milliseconds);
    if (n < 0)
        fail("neater_poll_event", last_words());
    if (n == 1)
        take(&event);
    neater_event_clear(&event);
    return (int)n;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void await(struct object *o, const char *event)
{
    double until = now() + 20;
    size_t length = strlen(event);
    for (;;) {
        for (; o->cursor < o->count; o->cursor++) {
            const char *seen = o->events[o->cursor];
            if (!strncmp(seen, event, length) && (seen[length] == 0 || seen[length] == ' ')) {
                o->cursor++;
                return;
            }
        }
        if (now() > until)
            fail("this event did not come in 20 s:", event);
        drive(100);
    }
}

static uint32_t stack_of(const char *word)
{
    static const struct {
        const char *word;
        uint32_t stack;
    } stacks[] = {{"tcp", NEATER_STACK_TCP},   {"tls", NEATER_STACK_TLS},   {"quic", NEATER_STACK_QUIC},
                  {"udp", NEATER_STACK_UDP},   {"sctp", NEATER_STACK_SCTP}, {"sctp-dtls", NEATER_STACK_SCTP_DTLS},
                  {"dtls", NEATER_STACK_DTLS}, {"quic-datagram", NEATER_STACK_QUIC_DATAGRAM}};
    size_t i;
    for (i = 0; i < sizeof stacks / sizeof *stacks; i++)
        if (!strcmp(stacks[i].word, word))
            return stacks[i].stack;
    fail("no stack of this name:", word);
    return 0;
}

#define TRY(call)                                                                                                  \
    do {                                                                                                           \
        neater_status tried = (call);                                                                              \
        if (tried != NEATER_OK)                                                                                    \
            return tried;                                                                                          \
    } while (0)

/* An address on loopback to which nothing listens. */
static uint16_t refused_port(void)
{
    struct sockaddr_in a;
    socklen_t length = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || getsockname(s, (struct sockaddr *)&a, &length))
        fail("a port that refuses", "");
    /* Bound and not listening: it stays refused. */
    return ntohs(a.sin_port);
}

/* A TCP port of ::1 whose queue is full: it does not answer. */
static uint16_t black_hole(void)
{
    struct sockaddr_in6 a;
    socklen_t length = sizeof a;
    int i, s = socket(AF_INET6, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_loopback;
    if (bind(s, (struct sockaddr *)&a, sizeof a) || getsockname(s, (struct sockaddr *)&a, &length) || listen(s, 0))
        fail("no black hole:", "is there an IPv6 loopback?");
    for (i = 0; i < 4; i++) {
        int c = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(c, (struct sockaddr *)&a, sizeof a);
        usleep(2000);
    }
    return ntohs(a.sin6_port);
}

static neater_status add_remotes(neater_preconnection *pre, char *list)
{
    char *rest = list, *item;
    while ((item = strtok_r(rest, ",", &rest))) {
        neater_remote_endpoint *e;
        struct object *o;
        neater_status added;
        if (strchr(item, ':')) {
            TRY(neater_preconnection_add_remote_text(pre, item));
            continue;
        }
        TRY(neater_remote_endpoint_new(&e));
        if (!strcmp(item, "refused")) {
            neater_remote_endpoint_with_ip_address(e, "127.0.0.1");
            neater_remote_endpoint_with_port(e, refused_port());
        } else {
            o = named(item);
            neater_remote_endpoint_with_ip_address(e, o->kind == HOLE ? "::1" : "127.0.0.1");
            neater_remote_endpoint_with_port(e, o->kind == HOLE ? o->port : neater_listener_port(o->listener));
            if (o->kind == LISTENER && neater_listener_udp_port(o->listener))
                neater_remote_endpoint_with_udp_port(e, neater_listener_udp_port(o->listener));
        }
        added = neater_preconnection_add_remote(pre, e);
        neater_remote_endpoint_free(e);
        TRY(added);
    }
    return NEATER_OK;
}

struct open {
    char *first;
    int replayable;
};

/* The words of `listen` and `initiate` become a preconnection. */
static neater_status prepare(neater_preconnection *pre, char **words, int count, struct open *open)
{
    neater_transport_properties *properties;
    int i, set = 0;
    neater_status status = NEATER_OK;
    TRY(neater_transport_properties_new(&properties));
    for (i = 0; i < count && status == NEATER_OK; i++) {
        char *value = strchr(words[i], '=');
        if (!value)
            fail("no key=value:", words[i]);
        *value++ = 0;
        if (!strcmp(words[i], "to")) {
            status = add_remotes(pre, value);
        } else if (!strcmp(words[i], "stacks")) {
            uint32_t list[8];
            size_t n = 0;
            char *rest = value, *item;
            while ((item = strtok_r(rest, ",", &rest)) && n < 8)
                list[n++] = stack_of(item);
            status = neater_preconnection_set_stacks(pre, list, n);
        } else if (!strcmp(words[i], "security")) {
            neater_security_parameters *clear;
            neater_security_parameters_new_disabled(&clear);
            status = neater_preconnection_set_security(pre, strcmp(value, "clear") ? own : clear);
            neater_security_parameters_free(clear);
        } else if (!strcmp(words[i], "framer")) {
            status = neater_preconnection_set_framer(
                pre, strcmp(value, "length4") ? NEATER_FRAMER_NONE : NEATER_FRAMER_LENGTH_4, 1 << 20);
        } else if (!strcmp(words[i], "needs")) {
            char *p;
            for (p = value; *p; p++)
                *p = *p == '+' ? ',' : *p;
            status = neater_preconnection_set_needs(pre, value);
        } else if (!strcmp(words[i], "timeout")) {
            status = neater_preconnection_set_timeout(pre, (uint64_t)atoi(value));
        } else if (!strcmp(words[i], "first")) {
            open->first = value;
        } else if (!strcmp(words[i], "replayable")) {
            open->replayable = 1;
        } else if (!strncmp(words[i], "property.", 9)) {
            status = neater_transport_properties_set_text(properties, words[i] + 9, value);
            set = 1;
        } else {
            fail("no such key:", words[i]);
        }
    }
    if (status == NEATER_OK && set)
        status = neater_preconnection_set_properties(pre, properties);
    neater_transport_properties_free(properties);
    return status;
}

static neater_status do_listen(char **words, int count)
{
    struct open open = {NULL, 0};
    neater_local_endpoint *local;
    neater_preconnection *pre;
    neater_listener *listener = NULL;
    neater_status status;
    struct object *o;
    TRY(neater_preconnection_new(context, &pre));
    TRY(neater_local_endpoint_new(&local));
    neater_local_endpoint_with_ip_address(local, "127.0.0.1");
    neater_local_endpoint_with_udp_port(local, 0);
    neater_preconnection_add_local(pre, local);
    neater_local_endpoint_free(local);
    status = prepare(pre, words + 2, count - 2, &open);
    if (status == NEATER_OK)
        status = neater_preconnection_listen(pre, &listener);
    neater_preconnection_free(pre);
    TRY(status);
    o = add(LISTENER, words[1]);
    o->listener = listener;
    return NEATER_OK;
}

static neater_status do_initiate(char **words, int count)
{
    struct open open = {NULL, 0};
    neater_preconnection *pre;
    neater_connection *connection = NULL;
    neater_message_context *properties;
    neater_status status;
    TRY(neater_preconnection_new(context, &pre));
    status = prepare(pre, words + 2, count - 2, &open);
    if (status == NEATER_OK && open.first) {
        neater_message_context_new(&properties);
        neater_message_context_set_boolean(properties, "safelyReplayable", open.replayable);
        status = neater_preconnection_initiate_with_send(pre, open.first, strlen(open.first), properties, &connection);
        neater_message_context_free(properties);
    } else if (status == NEATER_OK) {
        status = neater_preconnection_initiate(pre, &connection);
    }
    neater_preconnection_free(pre);
    TRY(status);
    add(CONNECTION, words[1])->connection = connection;
    return NEATER_OK;
}

static neater_status do_send(char **words, int count)
{
    struct object *o = named(words[1]);
    neater_message_context *properties;
    neater_status status = NEATER_OK;
    char *large = NULL, *text = words[2];
    size_t length = strlen(text);
    int i;
    TRY(neater_message_context_new(&properties));
    for (i = 3; i < count && status == NEATER_OK; i++) {
        char *value = strchr(words[i], '=');
        *value++ = 0;
        status = neater_message_context_set_text(properties, words[i], value);
    }
    /* So many bytes. */
    if (text[0] == '#') {
        length = (size_t)atol(text + 1);
        text = large = calloc(1, length);
    }
    if (status == NEATER_OK) {
        if (!strcmp(words[0], "send"))
            status = neater_connection_send(o->connection, text, length, properties, NULL);
        else
            status = neater_connection_send_partial(o->connection, text, length, !strcmp(words[0], "end"), properties,
                                                    NULL);
    }
    free(large);
    neater_message_context_free(properties);
    return status;
}

static void do_is(char **words)
{
    struct object *o = named(words[1]);
    char text[128];
    const char *what = words[2], *value = words[3];
    if (!strcmp(what, "family")) {
        neater_connection_text(o->connection, NEATER_TEXT_REMOTE_ADDRESS, text, sizeof text);
        strcpy(text, text[0] == '[' ? "ipv6" : "ipv4");
    } else if (!strcmp(what, "stack")) {
        if (neater_connection_stack(o->connection) != stack_of(value))
            fail("another stack than", value);
        return;
    } else if (!strcmp(what, "state")) {
        static const char *names[] = {"establishing", "established", "closing", "closed"};
        int64_t state = neater_connection_get_state(o->connection);
        snprintf(text, sizeof text, "%s", state < 0 || state > 3 ? "none" : names[state]);
    } else if (!strcmp(what, "candidates")) {
        /* Of a race that had several. */
        neater_race *race;
        if (neater_connection_race(o->connection, &race) != NEATER_OK)
            fail("no race", last_words());
        snprintf(text, sizeof text, "%d", (int)neater_race_count(race, NEATER_RACE_CANDIDATES));
        neater_race_free(race);
    } else {
        if (neater_connection_get_text(o->connection, what, text, sizeof text) < 0)
            fail("no such property", what);
    }
    if (strcmp(text, value))
        fail("it is", text);
}

static neater_status run(char **words, int count)
{
    struct object *o;
    const char *c = words[0];
    if (!strcmp(c, "listen"))
        return do_listen(words, count);
    if (!strcmp(c, "initiate"))
        return do_initiate(words, count);
    if (!strcmp(c, "blackhole")) {
        uint16_t port = black_hole();
        add(HOLE, words[1])->port = port;
        return NEATER_OK;
    }
    if (!strcmp(c, "send") || !strcmp(c, "part") || !strcmp(c, "end"))
        return do_send(words, count);
    if (!strcmp(c, "wait")) {
        double until = now() + atof(words[1]) / 1000;
        while (now() < until)
            drive(10);
        return NEATER_OK;
    }
    o = named(words[1]);
    if (!strcmp(c, "await")) {
        await(o, words[2]);
    } else if (!strcmp(c, "accept")) {
        neater_connection *received;
        await(o, "connection_received");
        received = o->received[o->received_taken++ % 16];
        add(CONNECTION, words[2])->connection = received;
    } else if (!strcmp(c, "receive")) {
        return neater_connection_receive(o->connection, NULL);
    } else if (!strcmp(c, "finish")) {
        return neater_connection_finish(o->connection);
    } else if (!strcmp(c, "close")) {
        return o->group ? neater_group_close(o->group) : neater_connection_close(o->connection);
    } else if (!strcmp(c, "abort")) {
        return neater_connection_abort(o->connection, 0);
    } else if (!strcmp(c, "stop")) {
        return neater_listener_stop(o->listener);
    } else if (!strcmp(c, "set")) {
        return neater_connection_set_text(o->connection, words[2], words[3]);
    } else if (!strcmp(c, "is")) {
        do_is(words);
    } else {
        fail("no such command", c);
    }
    return NEATER_OK;
}

/* Commands whose first word names something new. */
static neater_status run_new(char **words, int count)
{
    if (!strcmp(words[0], "clone")) {
        neater_connection *clone;
        TRY(neater_connection_clone(named(words[2])->connection, false, &clone));
        add(CONNECTION, words[1])->connection = clone;
        return NEATER_OK;
    }
    if (!strcmp(words[0], "group")) {
        neater_group *group;
        TRY(neater_connection_group(named(words[2])->connection, &group));
        add(GROUP, words[1])->group = group;
        return NEATER_OK;
    }
    return run(words, count);
}

int main(void)
{
    neater_context_options options;
    char line[1024], copy[1024], *words[WORDS], *rest, *word;
    int i, j, count;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.without_policies = 1;
    options.resolv_conf = "/dev/null";
    if (neater_context_new(&options, &context) != NEATER_OK)
        fail("no context", last_words());
    if (neater_security_parameters_new_self_signed("localhost,127.0.0.1,::1", &own) != NEATER_OK)
        fail("no certificate", last_words());
    while (fgets(line, sizeof line, stdin)) {
        const char *expected = "ok";
        char **command = words;
        neater_status status;
        line_number++;
        line[strcspn(line, "\n")] = 0;
        strcpy(copy, line);
        line_text = copy;
        count = 0;
        rest = line;
        while (count < WORDS && (word = strtok_r(rest, " ", &rest)))
            words[count++] = word;
        if (count == 0 || words[0][0] == '#')
            continue;
        if (!strcmp(words[0], "fails")) {
            expected = words[1];
            command += 2;
            count -= 2;
        }
        status = run_new(command, count);
        if (strcmp(status_name(status), expected))
            fail(status_name(status), status == NEATER_OK ? "" : last_words());
    }
    for (i = 0; i < object_count; i++)
        for (j = 0; j < objects[i].count; j++)
            printf("%s %s\n", objects[i].name, objects[i].events[j]);
    for (i = 0; i < object_count; i++) {
        struct object *o = &objects[i];
        for (j = o->received_taken; j < o->received_count; j++)
            neater_connection_free(o->received[j % 16]);
        neater_connection_free(o->connection);
        neater_group_free(o->group);
        neater_listener_free(o->listener);
        for (j = 0; j < o->count; j++)
            free(o->events[j]);
    }
    neater_security_parameters_free(own);
    neater_context_drain(context, 3000);
    neater_context_free(context);
    return 0;
}
