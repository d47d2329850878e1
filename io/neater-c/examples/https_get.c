/* HTTP/1.1 over TLS: prints the answer to a GET.
 *
 *     https_get HOST:PORT PATH [AUTHORITIES.pem]
 *
 * With a file the server is trusted if one of the authorities in it certifies it, without one by
 * those of the system. On standard error it prints what carried the answer, and how that was
 * found out. */
#include "common.h"

/* The whole of a file, with a zero byte behind it. */
static char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (!file || !text || fread(text, 1, (1 << 20) - 1, file) == 0) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

static void report(const neater_connection *connection)
{
    char stack[64], security[64], remote[64];
    neater_race *race;
    neater_step step = {sizeof step, 0, NULL};
    size_t i;

    neater_connection_text(connection, NEATER_TEXT_STACK, stack, sizeof stack);
    neater_connection_text(connection, NEATER_TEXT_SECURITY, security, sizeof security);
    neater_connection_text(connection, NEATER_TEXT_REMOTE_ADDRESS, remote, sizeof remote);
    fprintf(stderr, "%s, %s, to %s\n", stack, security, remote);
    CHECK(neater_connection_race(connection, &race));
    for (i = 0; neater_race_step(race, i, &step) == NEATER_OK; i++)
        fprintf(stderr, "%6.1f ms  %s\n", (double)step.at_us / 1000, step.text);
    neater_race_free(race);
}

int main(int argc, char **argv)
{
    neater_context *context;
    neater_preconnection *pre;
    neater_security_parameters *security;
    neater_connection *connection;
    neater_event event;
    char request[1024], *colon;
    int length, over = 0;
    size_t got = 0;

    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: https_get HOST:PORT PATH [AUTHORITIES.pem]\n");
        return 2;
    }
    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_security_parameters_new(&security));
    CHECK(neater_security_parameters_set_text(security, "alpn", "http/1.1"));
    if (argc == 4) {
        char *pem = contents(argv[3]);
        CHECK(neater_security_parameters_set_trusted(security, pem, false));
        free(pem);
    }
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_add_remote_text(pre, argv[1]));
    CHECK(neater_preconnection_set_needs(pre, "reliable, ordered, low-delay"));
    CHECK(neater_preconnection_set_security(pre, security));
    CHECK(neater_preconnection_initiate(pre, &connection));
    neater_security_parameters_free(security);
    neater_preconnection_free(pre);

    colon = strrchr(argv[1], ':');
    length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n\r\n", argv[2],
                      (int)(colon - argv[1]), argv[1]);
    CHECK(neater_connection_send(connection, request, (size_t)length, NULL, NULL));
    CHECK(neater_connection_receive(connection, NULL));
    while (!over) {
        next_event(context, &event);
        check_event(&event);
        switch (event.kind) {
        case NEATER_EVENT_READY:
            report(connection);
            break;
        case NEATER_EVENT_RECEIVED:
        case NEATER_EVENT_RECEIVED_PARTIAL:
            got += neater_message_length(event.data.received.message);
            fwrite(neater_message_data(event.data.received.message), 1,
                   neater_message_length(event.data.received.message), stdout);
            CHECK(neater_connection_receive(connection, NULL));
            break;
        case NEATER_EVENT_RECEIVE_END:
            CHECK(neater_connection_close(connection));
            break;
        case NEATER_EVENT_CLOSED:
            over = 1;
            break;
        default:
            break;
        }
        neater_event_clear(&event);
    }
    neater_connection_free(connection);
    neater_context_free(context);
    return got > 0 ? 0 : 1;
}
