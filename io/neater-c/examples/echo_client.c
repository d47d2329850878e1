/* Sends a text to an echo server and prints what comes back.
 *
 *     echo_client HOST:PORT TEXT */
#include "common.h"

int main(int argc, char **argv)
{
    neater_context *context;
    neater_preconnection *pre;
    neater_connection *connection;
    neater_event event;
    size_t got = 0, length;
    int over = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: echo_client HOST:PORT TEXT\n");
        return 2;
    }
    length = strlen(argv[2]);
    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_add_remote_text(pre, argv[1]));
    CHECK(neater_preconnection_set_needs(pre, "reliable, cleartext"));
    CHECK(neater_preconnection_initiate(pre, &connection));
    neater_preconnection_free(pre);

    /* Both may be asked for before the connection is there. */
    CHECK(neater_connection_send(connection, argv[2], length, NULL, NULL));
    CHECK(neater_connection_receive(connection, NULL));
    while (!over) {
        next_event(context, &event);
        check_event(&event);
        if (event.kind == NEATER_EVENT_RECEIVED || event.kind == NEATER_EVENT_RECEIVED_PARTIAL) {
            const neater_message *message = event.data.received.message;
            fwrite(neater_message_data(message), 1, neater_message_length(message), stdout);
            got += neater_message_length(message);
            if (got >= length)
                CHECK(neater_connection_close(connection));
            else
                CHECK(neater_connection_receive(connection, NULL));
        }
        over = event.kind == NEATER_EVENT_CLOSED;
        neater_event_clear(&event);
    }
    putchar('\n');
    neater_connection_free(connection);
    neater_context_free(context);
    return got == length ? 0 : 1;
}
