/* Messages over SCTP over UDP, both sides in one context: each keeps its boundaries, one need
 * not arrive, a second stream is a clone of the connection, and the paths and figures are
 * printed at the end.
 *
 *     messages_sctp */
#include "common.h"

static const uint32_t SCTP[] = {NEATER_STACK_SCTP};

static neater_preconnection *preconnection(neater_context *context)
{
    neater_preconnection *pre;
    neater_transport_properties *properties;
    neater_security_parameters *security;

    CHECK(neater_transport_properties_new(&properties));
    CHECK(neater_transport_properties_set_preference(properties, "preserveMsgBoundaries", NEATER_REQUIRE));
    CHECK(neater_transport_properties_set_preference(properties, "multistreaming", NEATER_REQUIRE));
    CHECK(neater_transport_properties_set_preference(properties, "perMsgReliability", NEATER_REQUIRE));
    CHECK(neater_security_parameters_new_disabled(&security));
    CHECK(neater_preconnection_new(context, &pre));
    CHECK(neater_preconnection_set_properties(pre, properties));
    CHECK(neater_preconnection_set_security(pre, security));
    CHECK(neater_preconnection_set_stacks(pre, SCTP, 1));
    neater_transport_properties_free(properties);
    neater_security_parameters_free(security);
    return pre;
}

static void send_text(neater_connection *connection, const char *text, const neater_message_context *context)
{
    CHECK(neater_connection_send(connection, text, strlen(text), context, NULL));
}

int main(void)
{
    neater_context *context;
    neater_preconnection *pre;
    neater_local_endpoint *local;
    neater_remote_endpoint *remote;
    neater_listener *listener;
    neater_connection *first, *second, *peers[2] = {NULL, NULL};
    neater_message_context *unreliable;
    neater_event event;
    neater_path path;
    neater_connection_statistics figures;
    int accepted = 0, received = 0, ready = 0, i;

    CHECK(neater_context_new(NULL, &context));
    CHECK(neater_local_endpoint_new(&local));
    CHECK(neater_local_endpoint_with_ip_address(local, "127.0.0.1"));
    CHECK(neater_local_endpoint_with_udp_port(local, 0));
    pre = preconnection(context);
    CHECK(neater_preconnection_add_local(pre, local));
    CHECK(neater_preconnection_listen(pre, &listener));
    neater_local_endpoint_free(local);
    neater_preconnection_free(pre);

    CHECK(neater_remote_endpoint_new(&remote));
    CHECK(neater_remote_endpoint_with_ip_address(remote, "127.0.0.1"));
    CHECK(neater_remote_endpoint_with_port(remote, neater_listener_port(listener)));
    CHECK(neater_remote_endpoint_with_udp_port(remote, neater_listener_udp_port(listener)));
    pre = preconnection(context);
    CHECK(neater_preconnection_add_remote(pre, remote));
    CHECK(neater_preconnection_initiate(pre, &first));
    neater_remote_endpoint_free(remote);
    neater_preconnection_free(pre);

    CHECK(neater_message_context_new(&unreliable));
    CHECK(neater_message_context_set_boolean(unreliable, "msgReliable", false));
    CHECK(neater_message_context_set_text(unreliable, "msgLifetime", "5s"));
    second = NULL;
    while (received < 3) {
        next_event(context, &event);
        check_event(&event);
        if (event.kind == NEATER_EVENT_READY && event.connection == first && ready++ == 0) {
            send_text(first, "one message", NULL);
            send_text(first, "another, which need not arrive", unreliable);
            /* A stream of the same association. */
            CHECK(neater_connection_clone(first, false, &second));
            send_text(second, "and one on a stream of its own", NULL);
        } else if (event.kind == NEATER_EVENT_CONNECTION_RECEIVED && accepted < 2) {
            peers[accepted] = neater_event_take_connection(&event);
            CHECK(neater_connection_receive(peers[accepted], NULL));
            accepted++;
        } else if (event.kind == NEATER_EVENT_RECEIVED) {
            received++;
            printf("%.*s\n", (int)neater_message_length(event.data.received.message),
                   (const char *)neater_message_data(event.data.received.message));
            CHECK(neater_connection_receive(event.connection, NULL));
        }
        neater_event_clear(&event);
    }

    memset(&path, 0, sizeof path);
    path.size = sizeof path;
    for (i = 0; neater_connection_path(first, (size_t)i, &path) == NEATER_OK; i++)
        fprintf(stderr, "path %d: %s to %s, %lld us\n", i, path.local, path.remote, (long long)path.rtt_us);
    memset(&figures, 0, sizeof figures);
    figures.size = sizeof figures;
    CHECK(neater_connection_get_statistics(first, &figures));
    fprintf(stderr, "%llu messages sent\n", (unsigned long long)figures.messages_sent);

    neater_message_context_free(unreliable);
    neater_connection_free(first);
    neater_connection_free(second);
    for (i = 0; i < accepted; i++)
        neater_connection_free(peers[i]);
    neater_listener_free(listener);
    CHECK(neater_context_drain(context, 5000));
    neater_context_free(context);
    return 0;
}
