/* An echo server over TCP in the clear: every message goes back to where it came from.
 *
 *     echo_server [CONNECTIONS]
 *
 * It prints its port, and ends after that many connections (without a number: never). */
#include "common.h"

int main(int argc, char **argv)
{
    long left = argc > 1 ? atol(argv[1]) : -1;
    neater_context *context;
    neater_preconnection *pre;
    neater_local_endpoint *local;
    neater_listener *listener;
    neater_event event;

    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_local_endpoint_new(&local));
    CHECK(neater_local_endpoint_with_ip_address(local, "127.0.0.1"));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_add_local(pre, local));
    CHECK(neater_preconnection_set_needs(pre, "reliable, cleartext"));
    CHECK(neater_preconnection_listen(pre, &listener));
    neater_local_endpoint_free(local);
    neater_preconnection_free(pre);
    printf("%u\n", neater_listener_port(listener));
    fflush(stdout);

    while (left != 0) {
        neater_connection *connection;
        int64_t n;
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        n = neater_poll_event(context, &event, -1);
        if (n <= 0)
            continue;
        switch (event.kind) {
        case NEATER_EVENT_CONNECTION_RECEIVED:
            /* From now on it is ours, and is given back when it is over. */
            connection = neater_event_take_connection(&event);
            CHECK(neater_connection_receive(connection, NULL));
            break;
        case NEATER_EVENT_RECEIVED:
        case NEATER_EVENT_RECEIVED_PARTIAL: {
            const neater_message *message = event.data.received.message;
            neater_status sent = neater_connection_send(event.connection, neater_message_data(message),
                                                        neater_message_length(message), NULL, NULL);
            if (sent != NEATER_OK)
                neater_connection_abort(event.connection, 0);
            CHECK(neater_connection_receive(event.connection, NULL));
            break;
        }
        case NEATER_EVENT_RECEIVE_END:
            CHECK(neater_connection_close(event.connection));
            break;
        case NEATER_EVENT_CLOSED:
        case NEATER_EVENT_CONNECTION_ERROR:
            neater_connection_free(event.connection);
            if (left > 0)
                left--;
            break;
        default:
            break;
        }
        neater_event_clear(&event);
    }
    neater_listener_free(listener);
    CHECK(neater_context_drain(context, 5000));
    neater_context_free(context);
    return 0;
}
