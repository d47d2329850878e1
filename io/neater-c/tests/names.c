/* Connecting by a name: by the hosts file, by name servers, by the system's resolver, by a function
 * of the program's.
 *
 *     names RESOLV_CONF HOSTS NAME_SERVED */
#include <netdb.h>
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
    EXPECT(neater_preconnection_new(context, &pre) == NEATER_OK);
    EXPECT(neater_preconnection_set_needs(pre, "reliable, cleartext") == NEATER_OK);
    EXPECT(neater_preconnection_set_stacks(pre, tcp, 1) == NEATER_OK);
    return pre;
}

/* Connects to a listener of this context by a name; returns the last event and what was wrong. */
static uint32_t connects(neater_context *context, const char *name, char *why, size_t room)
{
    neater_preconnection *pre = clear_tcp(context);
    neater_local_endpoint *local;
    neater_listener *listener;
    neater_connection *connection;
    neater_event event;
    uint32_t kind = NEATER_EVENT_NONE;
    char address[300];

    why[0] = 0;
    EXPECT(neater_local_endpoint_new(&local) == NEATER_OK);
    EXPECT(neater_local_endpoint_with_ip_address(local, "127.0.0.1") == NEATER_OK);
    EXPECT(neater_preconnection_add_local(pre, local) == NEATER_OK);
    EXPECT(neater_preconnection_listen(pre, &listener) == NEATER_OK);
    neater_local_endpoint_free(local);
    neater_preconnection_free(pre);
    pre = clear_tcp(context);
    snprintf(address, sizeof address, "%s:%u", name, neater_listener_port(listener));
    EXPECT(neater_preconnection_add_remote_text(pre, address) == NEATER_OK);
    EXPECT(neater_preconnection_initiate(pre, &connection) == NEATER_OK);
    neater_preconnection_free(pre);
    while (kind != NEATER_EVENT_READY && kind != NEATER_EVENT_ESTABLISHMENT_ERROR) {
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        EXPECT(neater_poll_event(context, &event, 20000) == 1);
        if (event.connection == connection)
            kind = event.kind;
        if (kind == NEATER_EVENT_ESTABLISHMENT_ERROR)
            snprintf(why, room, "%s", neater_error_text(event.data.error.error));
        neater_event_clear(&event);
    }
    neater_connection_free(connection);
    neater_listener_free(listener);
    return kind;
}

static neater_context_options nothing(void)
{
    neater_context_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.without_policies = 1;
    options.resolv_conf = "/dev/null";
    options.hosts = "/dev/null";
    return options;
}

struct directory {
    int asked;
    neater_lookup *kept;
    pthread_t thread;
};

static void *later(void *user)
{
    static const char *const addresses[] = {"127.0.0.1"};
    struct directory *directory = user;
    usleep(50000);
    EXPECT(neater_lookup_answer(directory->kept, addresses, 1, 0) == NEATER_OK);
    return NULL;
}

static void look_up(neater_lookup *lookup, void *user)
{
    static const char *const addresses[] = {"::1", "127.0.0.1"}, *const wrong[] = {"127.0.0.1", "no address"};
    struct directory *directory = user;
    const char *name = neater_lookup_name(lookup);
    directory->asked++;
    EXPECT(neater_lookup_interface(lookup) == 0);
    if (strcmp(name, "now.directory") == 0) {
        /* A wrong answer is none, and the lookup still waits. */
        EXPECT(neater_lookup_answer(lookup, wrong, 2, 60000) < 0);
        EXPECT(neater_lookup_answer(lookup, NULL, 1, 60000) == NEATER_ERROR_INVALID_ARGUMENT);
        EXPECT(neater_lookup_answer(lookup, addresses, 1000, 60000) == NEATER_ERROR_INVALID_ARGUMENT);
        EXPECT(neater_lookup_answer(lookup, addresses, 2, 60000) == NEATER_OK);
    } else if (strcmp(name, "later.directory") == 0) {
        directory->kept = lookup;
        EXPECT(pthread_create(&directory->thread, NULL, later, directory) == 0);
    } else if (strcmp(name, "none.directory") == 0) {
        EXPECT(neater_lookup_answer(lookup, NULL, 0, 0) == NEATER_OK);
    } else {
        neater_lookup_free(lookup);
    }
}

static void by_the_program(void)
{
    struct directory directory;
    neater_context_options options = nothing();
    neater_context *context;
    char why[1024];

    memset(&directory, 0, sizeof directory);
    options.names_by = look_up;
    options.names_user = &directory;
    EXPECT(neater_context_new(&options, &context) == NEATER_OK);
    EXPECT(connects(context, "now.directory", why, sizeof why) == NEATER_EVENT_READY && directory.asked == 1);
    /* It holds for a minute. */
    EXPECT(connects(context, "now.directory", why, sizeof why) == NEATER_EVENT_READY && directory.asked == 1);
    EXPECT(connects(context, "later.directory", why, sizeof why) == NEATER_EVENT_READY && directory.asked == 2);
    pthread_join(directory.thread, NULL);
    EXPECT(connects(context, "none.directory", why, sizeof why) == NEATER_EVENT_ESTABLISHMENT_ERROR);
    EXPECT(strstr(why, "no such name") != NULL);
    EXPECT(connects(context, "forgotten.directory", why, sizeof why) == NEATER_EVENT_ESTABLISHMENT_ERROR);
    EXPECT(strstr(why, "has failed") != NULL && directory.asked == 4);
    neater_context_free(context);
    /* A program built with a header that had no such function. */
    options.size = offsetof(neater_context_options, names_by);
    EXPECT(neater_context_new(&options, &context) == NEATER_OK);
    EXPECT(connects(context, "now.directory", why, sizeof why) == NEATER_EVENT_ESTABLISHMENT_ERROR);
    EXPECT(directory.asked == 4);
    neater_context_free(context);
}

/* The system's resolver knows this host's name, where it does. */
static void by_the_system(void)
{
    neater_context_options options = nothing();
    neater_context *context;
    char why[1024], host[256];
    struct addrinfo hint, *found = NULL;

    memset(&hint, 0, sizeof hint);
    hint.ai_family = AF_INET;
    if (gethostname(host, sizeof host) != 0 || strcmp(host, "localhost") == 0 ||
        getaddrinfo(host, NULL, &hint, &found) != 0) {
        puts("the system does not know this host's name");
        return;
    }
    freeaddrinfo(found);
    options.names_by_system = 1;
    EXPECT(neater_context_new(&options, &context) == NEATER_OK);
    /* It may be an address where nothing listens; that it was found is what counts. */
    connects(context, host, why, sizeof why);
    EXPECT(strstr(why, "no such name") == NULL && strstr(why, "has failed") == NULL);
    neater_context_free(context);
}

int main(int argc, char **argv)
{
    neater_context_options options = nothing();
    neater_context *context;
    char why[1024];

    EXPECT(argc == 4);
    /* Name servers, and the hosts file, as for every program on neater. */
    options.resolv_conf = argv[1];
    options.hosts = argv[2];
    EXPECT(neater_context_new(&options, &context) == NEATER_OK);
    EXPECT(connects(context, argv[3], why, sizeof why) == NEATER_EVENT_READY);
    EXPECT(connects(context, "hosts-file.test", why, sizeof why) == NEATER_EVENT_READY);
    EXPECT(connects(context, "unknown.example", why, sizeof why) == NEATER_EVENT_ESTABLISHMENT_ERROR);
    EXPECT(strstr(why, "no such name") != NULL);
    neater_context_free(context);
    by_the_system();
    by_the_program();
    return 0;
}
