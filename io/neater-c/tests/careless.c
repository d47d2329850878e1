/* What a careless program does, and what it is answered. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <neater.h>

#include "expect.h"

static neater_preconnection *clear_tcp(neater_context *context)
{
    static const uint32_t tcp[] = {NEATER_STACK_TCP};
    neater_preconnection *pre;
    neater_security_parameters *security;
    EXPECT(neater_preconnection_new(context, &pre) == NEATER_OK);
    EXPECT(neater_security_parameters_new_disabled(&security) == NEATER_OK);
    EXPECT(neater_preconnection_set_security(pre, security) == NEATER_OK);
    EXPECT(neater_preconnection_set_stacks(pre, tcp, 1) == NEATER_OK);
    neater_security_parameters_free(security);
    return pre;
}

static neater_listener *listen_on(neater_context *context, neater_event_fn callback, void *user)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_local_endpoint *local;
    neater_listener *listener;
    EXPECT(neater_local_endpoint_new(&local) == NEATER_OK);
    EXPECT(neater_local_endpoint_with_ip_address(local, "127.0.0.1") == NEATER_OK);
    EXPECT(neater_preconnection_add_local(pre, local) == NEATER_OK);
    EXPECT(neater_preconnection_set_callback(pre, callback, user) == NEATER_OK);
    EXPECT(neater_preconnection_listen(pre, &listener) == NEATER_OK);
    neater_local_endpoint_free(local);
    neater_preconnection_free(pre);
    return listener;
}

static neater_connection *connect_to(neater_context *context, neater_listener *listener, neater_event_fn callback,
                                     void *user)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_connection *connection;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", neater_listener_port(listener));
    EXPECT(neater_preconnection_add_remote_text(pre, address) == NEATER_OK);
    EXPECT(neater_preconnection_set_callback(pre, callback, user) == NEATER_OK);
    EXPECT(neater_preconnection_initiate(pre, &connection) == NEATER_OK);
    neater_preconnection_free(pre);
    return connection;
}

/* Sizes of structs that are too small, too large, or ask for what there is not. */
static void sizes(neater_context *context)
{
    struct {
        neater_event event;
        char more[64];
    } newer;
    struct {
        neater_context_options options;
        char more[64];
    } options;
    neater_context *other;
    neater_context_statistics figures;

    memset(&newer, 0, sizeof newer);
    EXPECT(neater_poll_event(context, &newer.event, 0) == NEATER_ERROR_SIZE);
    newer.event.size = 8;
    EXPECT(neater_poll_event(context, &newer.event, 0) == NEATER_ERROR_SIZE);
    newer.event.size = (size_t)-1;
    EXPECT(neater_poll_event(context, &newer.event, 0) == NEATER_ERROR_SIZE);
    newer.event.size = sizeof newer;
    EXPECT(neater_poll_event(context, &newer.event, 0) == 0);

    memset(&options, 0, sizeof options);
    EXPECT(neater_context_new(&options.options, &other) == NEATER_ERROR_SIZE);
    options.options.size = sizeof options;
    EXPECT(neater_context_new(&options.options, &other) == NEATER_OK);
    neater_context_free(other);
    options.more[40] = 1;
    EXPECT(neater_context_new(&options.options, &other) == NEATER_ERROR_SIZE);
    memset(&figures, 0, sizeof figures);
    EXPECT(neater_context_get_statistics(context, &figures) == NEATER_ERROR_SIZE);
}

/* Texts and numbers that make no sense. */
static void nonsense(neater_context *context)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_transport_properties *properties;
    neater_connection *connection = NULL;
    neater_security_parameters *security;
    char text[16];
    double number;
    const uint32_t no_stack[] = {77};

    EXPECT(neater_preconnection_set_needs(pre, "\xff\xfe") == NEATER_ERROR_INVALID_ARGUMENT);
    EXPECT(neater_preconnection_set_needs(pre, "no such word") == NEATER_ERROR_PARSE);
    EXPECT(neater_preconnection_set_stacks(pre, no_stack, 1) == NEATER_ERROR_INVALID_ARGUMENT);
    EXPECT(neater_preconnection_set_framer(pre, 3, 100) == NEATER_ERROR_INVALID_ARGUMENT);
    EXPECT(neater_preconnection_add_remote_text(pre, "example.com") == NEATER_ERROR_PARSE);
    EXPECT(strstr(neater_error_text(neater_last_error()), "port is missing") != NULL);
    EXPECT(neater_preconnection_initiate(pre, &connection) == NEATER_ERROR_INVALID_CONFIGURATION);
    EXPECT(connection == NULL);
    EXPECT(neater_preconnection_rendezvous(pre, &connection) == NEATER_ERROR_UNSUPPORTED);
    neater_preconnection_free(pre);

    EXPECT(neater_transport_properties_new(&properties) == NEATER_OK);
    EXPECT(neater_transport_properties_set_preference(properties, "reliability", 9) == NEATER_ERROR_INVALID_ARGUMENT);
    EXPECT(neater_transport_properties_set_number(properties, "connTimeout", -1) == NEATER_ERROR_INVALID_VALUE);
    EXPECT(neater_transport_properties_set_number(properties, "connTimeout", 2.5) == NEATER_OK);
    EXPECT(neater_transport_properties_get_number(properties, "connTimeout", &number) == NEATER_OK && number == 2.5);
    EXPECT(neater_transport_properties_get_text(properties, "connCapacityProfile", text, 4) > 4);
    EXPECT(strlen(text) == 3);
    EXPECT(neater_transport_properties_get_number(properties, "nothing", &number) == NEATER_ERROR_NOT_FOUND);
    neater_transport_properties_free(properties);

    EXPECT(neater_security_parameters_new(&security) == NEATER_OK);
    EXPECT(neater_security_parameters_set_trusted(security, "not PEM", false) == NEATER_ERROR_SECURITY);
    EXPECT(neater_security_parameters_add_server_certificate(security, "x", "y") == NEATER_ERROR_SECURITY);
    EXPECT(neater_security_parameters_set_text(security, "alpn", "h2") == NEATER_OK);
    neater_security_parameters_free(security);
}

/* Candidates and reasons of an error, as lists. */
static void lists(neater_context *context)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_connection *connection;
    neater_event event;
    neater_candidate candidate;
    const neater_race *race;
    EXPECT(neater_preconnection_add_remote_text(pre, "127.0.0.1:1") == NEATER_OK);
    EXPECT(neater_preconnection_initiate(pre, &connection) == NEATER_OK);
    EXPECT(neater_connection_set_user(connection, &event) == NEATER_OK);
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    EXPECT(neater_poll_event(context, &event, 5000) == 1);
    EXPECT(event.kind == NEATER_EVENT_ESTABLISHMENT_ERROR && event.connection == connection && event.user == &event);
    race = neater_error_race(event.data.error.error);
    EXPECT(neater_race_count(race, NEATER_RACE_CANDIDATES) == 1);
    memset(&candidate, 0, sizeof candidate);
    candidate.size = sizeof candidate;
    EXPECT(neater_race_candidate(race, 0, &candidate) == NEATER_OK);
    EXPECT(candidate.stack == NEATER_STACK_TCP && candidate.fate == NEATER_FATE_FAILED);
    EXPECT(!strcmp(candidate.remote, "127.0.0.1:1") && strstr(candidate.reason, "refused"));
    EXPECT(neater_race_candidate(race, 1, &candidate) == NEATER_ERROR_NOT_FOUND);
    EXPECT(neater_event_clear(&event) == NEATER_OK && neater_event_clear(&event) == NEATER_OK);
    neater_connection_free(connection);
    neater_preconnection_free(pre);
}

struct chaos {
    neater_context *context;
    neater_listener *listener;
    int events, last;
};

/* Calls what may not be called, and gives everything back within the callback for it. */
static void frees_all(neater_event *event, void *user)
{
    struct chaos *chaos = user;
    neater_event nested;
    chaos->events++;
    memset(&nested, 0, sizeof nested);
    nested.size = sizeof nested;
    EXPECT(neater_process(chaos->context) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_poll_event(chaos->context, &nested, 0) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_context_drain(chaos->context, 0) == NEATER_ERROR_REENTRANT);
    if (event->kind == NEATER_EVENT_READY) {
        neater_connection *connection = event->connection;
        neater_connection_free(connection);
        /* The library still has it, so it is known that the program has not. */
        EXPECT(neater_connection_send(connection, "x", 1, NULL, NULL) == NEATER_ERROR_INVALID_ARGUMENT);
        EXPECT(strstr(neater_error_text(neater_last_error()), "given back") != NULL);
        EXPECT(neater_connection_receive(connection, NULL) == NEATER_ERROR_INVALID_ARGUMENT);
        EXPECT(neater_connection_get_state(connection) == NEATER_ERROR_INVALID_ARGUMENT);
        neater_connection_free(connection);
        neater_listener_free(chaos->listener);
        neater_context_free(chaos->context);
        EXPECT(neater_context_flush_caches(chaos->context) == NEATER_ERROR_NO_CONTEXT);
        EXPECT(neater_process(chaos->context) == NEATER_ERROR_NO_CONTEXT);
        neater_context_free(chaos->context);
        chaos->last = 1;
    }
}

static void freed_in_a_callback(void)
{
    struct chaos chaos = {NULL, NULL, 0, 0};
    neater_context *context;
    int i;
    EXPECT(neater_context_new(NULL, &context) == NEATER_OK);
    chaos.context = context;
    chaos.listener = listen_on(context, frees_all, &chaos);
    connect_to(context, chaos.listener, frees_all, &chaos);
    for (i = 0; i < 1000 && !chaos.last; i++) {
        struct pollfd fd = {neater_fd(context), POLLIN, 0};
        poll(&fd, 1, 1000);
        if (neater_process(context) < 0)
            break;
    }
    EXPECT(chaos.last == 1);
}

/* Objects that outlive their context. */
static void orphans(void)
{
    neater_context *context;
    neater_listener *listener;
    neater_connection *connection;
    neater_preconnection *pre;
    EXPECT(neater_context_new(NULL, &context) == NEATER_OK);
    pre = clear_tcp(context);
    listener = listen_on(context, NULL, NULL);
    connection = connect_to(context, listener, NULL, NULL);
    neater_context_free(context);
    EXPECT(neater_connection_send(connection, "x", 1, NULL, NULL) < 0);
    EXPECT(neater_connection_receive(connection, NULL) == NEATER_ERROR_NO_CONTEXT);
    EXPECT(neater_preconnection_initiate(pre, &connection) == NEATER_ERROR_NO_CONTEXT);
    neater_connection_close(connection);
    neater_connection_free(connection);
    neater_listener_free(listener);
    neater_preconnection_free(pre);
}

static neater_connection *owner;

/* It runs while the engine is at work, or within a call. */
static void release(const void *data, void *user)
{
    (void)data;
    ++*(int *)user;
    if (owner)
        EXPECT(neater_connection_receive(owner, NULL) == NEATER_ERROR_REENTRANT);
    owner = NULL;
}

/* Bytes that stay the program's. */
static void owned(neater_context *context)
{
    static const char data[] = "bytes that are not copied";
    neater_listener *listener = listen_on(context, NULL, NULL);
    neater_connection *connection = connect_to(context, listener, NULL, NULL);
    int released = 0;
    owner = connection;
    EXPECT(neater_connection_send_owned(connection, data, sizeof data, release, &released, NULL, NULL) == NEATER_OK);
    EXPECT(neater_connection_send_owned(connection, NULL, 5, release, &released, NULL, NULL) ==
           NEATER_ERROR_INVALID_ARGUMENT);
    neater_connection_close(connection);
    neater_connection_free(connection);
    EXPECT(neater_context_drain(context, 5000) == NEATER_OK || released == 1);
    EXPECT(released == 1);
    neater_listener_free(listener);
}

static void *another_thread(void *user)
{
    neater_connection *connection = user;
    usleep(50000);
    EXPECT(neater_connection_send(connection, "from a thread", 13, NULL, NULL) == NEATER_OK);
    return NULL;
}

/* A call of another thread ends the wait of the one that drives. */
static void threads(neater_context *context)
{
    neater_listener *listener = listen_on(context, NULL, NULL);
    neater_connection *connection = connect_to(context, listener, NULL, NULL), *peer = NULL;
    pthread_t thread;
    int received = 0, started = 0;
    while (!received) {
        neater_event event;
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        EXPECT(neater_poll_event(context, &event, 10000) == 1);
        if (event.kind == NEATER_EVENT_CONNECTION_RECEIVED) {
            peer = neater_event_take_connection(&event);
            EXPECT(neater_connection_receive(peer, NULL) == NEATER_OK);
        }
        if (event.kind == NEATER_EVENT_READY && !started++)
            EXPECT(pthread_create(&thread, NULL, another_thread, connection) == 0);
        received = event.kind == NEATER_EVENT_RECEIVED_PARTIAL;
        if (received)
            EXPECT(neater_message_length(event.data.received.message) == 13);
        neater_event_clear(&event);
    }
    pthread_join(thread, NULL);
    neater_connection_free(connection);
    neater_connection_free(peer);
    neater_listener_free(listener);
}

/* A plan and an explanation: nothing is sent. */
static void plans(neater_context *context)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_event event;
    char text[2048];
    int mark;
    EXPECT(neater_preconnection_add_remote_text(pre, "127.0.0.1:80") == NEATER_OK);
    EXPECT(neater_preconnection_plan(pre, &mark) == NEATER_OK);
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    EXPECT(neater_poll_event(context, &event, 5000) == 1);
    EXPECT(event.kind == NEATER_EVENT_PLANNED && event.user == &mark);
    EXPECT(neater_race_count(event.data.planned.race, NEATER_RACE_CANDIDATES) == 1);
    neater_event_clear(&event);
    EXPECT(neater_preconnection_explain(pre, NEATER_ROLE_INITIATE, NULL, text, sizeof text) > 0);
    EXPECT(strstr(text, "TCP") != NULL);
    EXPECT(neater_preconnection_stack(pre, NEATER_ROLE_INITIATE, 0) == NEATER_STACK_TCP);
    EXPECT(neater_preconnection_stack(pre, NEATER_ROLE_INITIATE, 1) == NEATER_ERROR_NOT_FOUND);
    neater_preconnection_free(pre);
}

int main(void)
{
    neater_context *context;
    EXPECT(neater_context_new(NULL, &context) == NEATER_OK);
    sizes(context);
    nonsense(context);
    lists(context);
    plans(context);
    owned(context);
    threads(context);
    neater_context_drain(context, 2000);
    neater_context_free(context);
    freed_in_a_callback();
    orphans();
    return 0;
}
