/* The frame of a generated program: it calls every function with NULL for each pointer, one after
 * the other, outside of callbacks and within one. The test adds `all`. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <neater.h>

#define NEED(condition)                                                                                            \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, neater_error_text(neater_last_error()));    \
            exit(2);                                                                                               \
        }                                                                                                          \
    } while (0)

static int bad;

/* NULL is an error, and that one. */
static void refused(int64_t status, const char *function, const char *argument)
{
    if (status != NEATER_ERROR_INVALID_ARGUMENT) {
        fprintf(stderr, "%s: NULL as %s is answered with %d\n", function, argument, (int)status);
        bad++;
    }
}

/* It is an error, whichever. */
static void failed(int64_t status, const char *function, const char *argument)
{
    if (status >= 0 || status == NEATER_ERROR_PANIC) {
        fprintf(stderr, "%s: NULL as %s is answered with %d\n", function, argument, (int)status);
        bad++;
    }
}

/* NULL means something, or what else is asked makes no sense here. */
static void allowed(int64_t status, const char *function, const char *argument)
{
    if (status == NEATER_ERROR_INVALID_ARGUMENT || status == NEATER_ERROR_PANIC) {
        fprintf(stderr, "%s: NULL as %s is refused with %d\n", function, argument, (int)status);
        bad++;
    }
}

static void nothing(int is_nothing, const char *function, const char *argument, int must_be)
{
    if (must_be && !is_nothing && strcmp(function, "neater_fd") != 0 && strcmp(function, "neater_error_text") != 0) {
        fprintf(stderr, "%s: NULL as %s has an answer\n", function, argument);
        bad++;
    }
}

static void no_event(neater_event *event, void *user)
{
    (void)event;
    (void)user;
}

static void no_release(const void *data, void *user)
{
    (void)data;
    (void)user;
}

static bool no_trust(const neater_certificate *chain, size_t certificates, const char *name, void *user)
{
    return chain && certificates && name && user;
}

static uint32_t no_challenge(neater_challenge *challenge, void *user)
{
    return challenge && user ? NEATER_CHALLENGE_SIGN : NEATER_CHALLENGE_REFUSE;
}

/* One good object of every kind. */
static neater_context *a_context, *out_context;
static neater_preconnection *a_preconnection, *out_preconnection;
static neater_connection *a_connection, *out_connection;
static neater_listener *a_listener, *out_listener;
static neater_group *a_group, *out_group;
static neater_transport_properties *a_transport_properties, *out_transport_properties;
static neater_security_parameters *a_security_parameters, *out_security_parameters;
static neater_remote_endpoint *a_remote_endpoint, *out_remote_endpoint;
static neater_local_endpoint *a_local_endpoint;
static neater_message_context *a_message_context;
static neater_message *a_message;
static neater_race *a_race, *out_race;
static neater_lookup *a_lookup;
static neater_event event_, *a_event = &event_;
static neater_context_options options_, *a_context_options = &options_;
static neater_context_statistics figures_, *a_context_statistics = &figures_;
static neater_connection_statistics more_, *a_connection_statistics = &more_;
static neater_receive_options receive_, *a_receive_options = &receive_;
static neater_message_info info_, *a_message_info = &info_;
static neater_candidate candidate_, *a_candidate = &candidate_;
static neater_step step_, *a_step = &step_;
static neater_path path_, *a_path = &path_;
static neater_listening listening_, *a_listening = &listening_;
static char buffer[4096];
static const char *const texts[] = {"127.0.0.1"};
static double a_double;
static bool a_bool;
static int32_t an_int;
static uint64_t an_id;
static uint32_t a_stack = NEATER_STACK_TCP;

static void all(void);

static void sizes(void)
{
    event_.size = sizeof event_;
    options_.size = sizeof options_;
    figures_.size = sizeof figures_;
    more_.size = sizeof more_;
    receive_.size = sizeof receive_;
    info_.size = sizeof info_;
    candidate_.size = sizeof candidate_;
    step_.size = sizeof step_;
    path_.size = sizeof path_;
    listening_.size = sizeof listening_;
}

static neater_preconnection *clear_tcp(void)
{
    static const uint32_t tcp[] = {NEATER_STACK_TCP};
    neater_preconnection *pre;
    NEED(neater_preconnection_new(a_context, &pre) == NEATER_OK);
    NEED(neater_preconnection_set_needs(pre, "reliable, cleartext") == NEATER_OK);
    NEED(neater_preconnection_set_stacks(pre, tcp, 1) == NEATER_OK);
    return pre;
}

/* Everything, of which one call makes something. */
static void everything(void)
{
    all();
    neater_context_free(out_context);
    out_context = NULL;
}

/* Calls everything in the callback of the connection that the listener has received. */
static void within(neater_event *event, void *user)
{
    if (event->kind == NEATER_EVENT_RECEIVED || event->kind == NEATER_EVENT_RECEIVED_PARTIAL) {
        ++*(int *)user;
        everything();
    }
}

/* A message that was received, a connection whose race is known, and a callback. */
static void talk(void)
{
    neater_preconnection *pre = clear_tcp();
    neater_connection *peer = NULL;
    neater_event event;
    char address[32];
    int called = 0, turns;

    NEED(neater_preconnection_add_local(pre, a_local_endpoint) == NEATER_OK);
    NEED(neater_preconnection_listen(pre, &a_listener) == NEATER_OK);
    neater_preconnection_free(pre);
    pre = clear_tcp();
    snprintf(address, sizeof address, "127.0.0.1:%u", neater_listener_port(a_listener));
    NEED(neater_preconnection_add_remote_text(pre, address) == NEATER_OK);
    NEED(neater_preconnection_initiate(pre, &a_connection) == NEATER_OK);
    neater_preconnection_free(pre);
    NEED(neater_connection_send(a_connection, "one", 3, NULL, NULL) == NEATER_OK);
    while (!a_message) {
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        NEED(neater_poll_event(a_context, &event, 10000) == 1);
        if (event.kind == NEATER_EVENT_CONNECTION_RECEIVED) {
            peer = neater_event_take_connection(&event);
            NEED(neater_connection_receive(peer, NULL) == NEATER_OK);
        }
        if (event.kind == NEATER_EVENT_RECEIVED_PARTIAL)
            a_message = neater_event_take_message(&event);
        neater_event_clear(&event);
    }
    NEED(neater_connection_race(a_connection, &a_race) == NEATER_OK);
    NEED(neater_connection_group(a_connection, &a_group) == NEATER_OK);
    everything();

    NEED(neater_connection_set_callback(peer, within, &called) == NEATER_OK);
    NEED(neater_connection_receive(peer, NULL) == NEATER_OK);
    NEED(neater_connection_send(a_connection, "two", 3, NULL, NULL) == NEATER_OK);
    for (turns = 0; !called && turns < 1000; turns++) {
        struct pollfd fd = {neater_fd(a_context), POLLIN, 0};
        poll(&fd, 1, 100);
        NEED(neater_process(a_context) >= 0);
    }
    NEED(called);
    neater_connection_free(peer);
}

int main(void)
{
    sizes();
    NEED(neater_context_new(NULL, &a_context) == NEATER_OK);
    NEED(neater_transport_properties_new(&a_transport_properties) == NEATER_OK);
    NEED(neater_security_parameters_new(&a_security_parameters) == NEATER_OK);
    NEED(neater_remote_endpoint_parse("127.0.0.1:9", &a_remote_endpoint) == NEATER_OK);
    NEED(neater_local_endpoint_new(&a_local_endpoint) == NEATER_OK);
    NEED(neater_local_endpoint_with_ip_address(a_local_endpoint, "127.0.0.1") == NEATER_OK);
    NEED(neater_message_context_new(&a_message_context) == NEATER_OK);
    a_preconnection = clear_tcp();
    NEED(neater_preconnection_add_remote(a_preconnection, a_remote_endpoint) == NEATER_OK);
    talk();
    if (!bad)
        puts("done");
    return bad != 0;
}

