/* A client in an event loop of its own: one epoll has the descriptor of the context and standard
 * input. Each line is sent as a message, and the answers are printed; the server answers every
 * message by the same one (echo_server).
 *
 *     epoll_loop HOST:PORT < LINES */
#include "common.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

static size_t pending;
static int ended;

/* What has come is printed; the events are taken until there are none. */
static void take_events(neater_context *context, neater_connection *connection)
{
    neater_event event;
    for (;;) {
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        if (neater_poll_event(context, &event, 0) != 1)
            return;
        check_event(&event);
        if (event.kind == NEATER_EVENT_RECEIVED || event.kind == NEATER_EVENT_RECEIVED_PARTIAL) {
            size_t length = neater_message_length(event.data.received.message);
            fwrite(neater_message_data(event.data.received.message), 1, length, stdout);
            pending -= length;
            CHECK(neater_connection_receive(connection, NULL));
        } else if (event.kind == NEATER_EVENT_CLOSED) {
            ended = 1;
        }
        neater_event_clear(&event);
    }
}

int main(int argc, char **argv)
{
    neater_context *context;
    neater_preconnection *pre;
    neater_connection *connection;
    struct epoll_event watch, happened[2];
    int loop = epoll_create1(EPOLL_CLOEXEC), reading = 1, closing = 0;

    if (argc != 2 || loop < 0) {
        fprintf(stderr, "usage: epoll_loop HOST:PORT < LINES\n");
        return 2;
    }
    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_add_remote_text(pre, argv[1]));
    CHECK(neater_preconnection_set_needs(pre, "reliable, cleartext"));
    CHECK(neater_preconnection_initiate(pre, &connection));
    neater_preconnection_free(pre);
    CHECK(neater_connection_receive(connection, NULL));

    memset(&watch, 0, sizeof watch);
    watch.events = EPOLLIN;
    watch.data.fd = neater_fd(context);
    epoll_ctl(loop, EPOLL_CTL_ADD, neater_fd(context), &watch);
    watch.data.fd = STDIN_FILENO;
    /* A file cannot be watched, and is always readable. */
    int always = epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &watch) < 0 && errno == EPERM;

    while (!ended) {
        char line[4096];
        int readable = always && reading;
        int i, n = epoll_wait(loop, happened, 2, readable ? 0 : neater_timeout_ms(context));
        for (i = 0; i < n; i++)
            readable |= happened[i].data.fd == STDIN_FILENO;
        /* The descriptor is readable while there is something to do or to take. */
        take_events(context, connection);
        if (reading && readable) {
            ssize_t length = read(STDIN_FILENO, line, sizeof line);
            if (length > 0) {
                CHECK(neater_connection_send(connection, line, (size_t)length, NULL, NULL));
                pending += (size_t)length;
            } else {
                reading = 0;
                if (!always)
                    epoll_ctl(loop, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
            }
        }
        if (!reading && pending == 0 && !closing) {
            closing = 1;
            CHECK(neater_connection_close(connection));
        }
    }
    neater_connection_free(connection);
    neater_context_free(context);
    close(loop);
    return 0;
}
