/* Events by callbacks instead of a switch: both sides in one context, over QUIC with a
 * certificate of their own making. The client asks, the server answers, and each callback calls
 * the library as it likes.
 *
 *     callbacks [QUESTIONS] */
#include "common.h"

#include <poll.h>

struct client {
    int left;
    int over;
};

static void send_text(neater_connection *connection, const char *text)
{
    CHECK(neater_connection_send(connection, text, strlen(text), NULL, NULL));
}

static void on_server(neater_event *event, void *user)
{
    char answer[64];
    (void)user;
    switch (event->kind) {
    case NEATER_EVENT_CONNECTION_RECEIVED:
        CHECK(neater_connection_receive(neater_event_take_connection(event), NULL));
        break;
    case NEATER_EVENT_RECEIVED:
        snprintf(answer, sizeof answer, "an answer to %.*s", (int)neater_message_length(event->data.received.message),
                 (const char *)neater_message_data(event->data.received.message));
        send_text(event->connection, answer);
        CHECK(neater_connection_receive(event->connection, NULL));
        break;
    case NEATER_EVENT_CLOSED:
    case NEATER_EVENT_CONNECTION_ERROR:
        /* The object of an event may be given back within its callback. */
        neater_connection_free(event->connection);
        break;
    case NEATER_EVENT_RECEIVE_END:
        CHECK(neater_connection_close(event->connection));
        break;
    default:
        break;
    }
}

static void on_client(neater_event *event, void *user)
{
    struct client *client = user;
    check_event(event);
    switch (event->kind) {
    case NEATER_EVENT_READY:
        send_text(event->connection, "question 1");
        CHECK(neater_connection_receive(event->connection, NULL));
        break;
    case NEATER_EVENT_RECEIVED:
        printf("%.*s\n", (int)neater_message_length(event->data.received.message),
               (const char *)neater_message_data(event->data.received.message));
        if (--client->left > 0) {
            send_text(event->connection, "another question");
            CHECK(neater_connection_receive(event->connection, NULL));
        } else {
            CHECK(neater_connection_close(event->connection));
        }
        break;
    case NEATER_EVENT_CLOSED:
        client->over = 1;
        neater_connection_free(event->connection);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv)
{
    static const uint32_t quic[] = {NEATER_STACK_QUIC};
    struct client client = {argc > 1 ? atoi(argv[1]) : 3, 0};
    neater_context *context;
    neater_security_parameters *security;
    neater_preconnection *pre;
    neater_local_endpoint *local;
    neater_listener *listener;
    neater_connection *connection;
    char remote[32];

    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_security_parameters_new_self_signed("127.0.0.1", &security));
    CHECK(neater_local_endpoint_new(&local));
    CHECK(neater_local_endpoint_with_ip_address(local, "127.0.0.1"));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_set_security(pre, security));
    CHECK(neater_preconnection_set_stacks(pre, quic, 1));
    CHECK(neater_preconnection_set_framer(pre, NEATER_FRAMER_LENGTH_4, 1 << 20));
    CHECK(neater_preconnection_add_local(pre, local));
    CHECK(neater_preconnection_set_callback(pre, on_server, NULL));
    CHECK(neater_preconnection_listen(pre, &listener));
    neater_preconnection_free(pre);

    snprintf(remote, sizeof remote, "127.0.0.1:%u", neater_listener_port(listener));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_set_security(pre, security));
    CHECK(neater_preconnection_set_stacks(pre, quic, 1));
    CHECK(neater_preconnection_set_framer(pre, NEATER_FRAMER_LENGTH_4, 1 << 20));
    CHECK(neater_preconnection_add_remote_text(pre, remote));
    CHECK(neater_preconnection_set_callback(pre, on_client, &client));
    CHECK(neater_preconnection_initiate(pre, &connection));
    neater_preconnection_free(pre);
    neater_local_endpoint_free(local);
    neater_security_parameters_free(security);

    while (!client.over) {
        struct pollfd fd = {neater_fd(context), POLLIN, 0};
        if (poll(&fd, 1, 10000) == 0) {
            fprintf(stderr, "nothing came for ten seconds\n");
            return 1;
        }
        int64_t waiting = neater_process(context);
        if (waiting < 0)
            check((neater_status)waiting, "neater_process");
    }
    neater_listener_free(listener);
    neater_context_drain(context, 5000);
    neater_context_free(context);
    return 0;
}
