/* The two callbacks of RFC 9622 section 6.3.8: whether a peer is trusted, and whether this side
 * signs. With OpenSSL the program signs itself, with a key that the library does not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_OPENSSL
#include <openssl/evp.h>
#include <openssl/pem.h>
#endif

#include <neater.h>

#include "expect.h"

struct state {
    neater_context *context;
    neater_connection *connection;
    neater_preconnection *pre;
    /* What the callbacks answer, and how often they were asked. */
    bool trusts;
    uint32_t answer;
    int judged, asked;
    char name[64], scheme[64];
#ifdef WITH_OPENSSL
    EVP_PKEY *key;
#endif
};

/* What calls of the library answer in a callback of a handshake. */
static void calls_back(struct state *state)
{
    neater_connection *other = NULL;
    char text[64];
    EXPECT(neater_process(state->context) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_context_drain(state->context, 0) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_context_flush_caches(state->context) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_connection_send(state->connection, "x", 1, NULL, NULL) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_connection_close(state->connection) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_connection_get_text(state->connection, "reliability", text, sizeof text) == NEATER_ERROR_REENTRANT);
    EXPECT(neater_preconnection_initiate(state->pre, &other) == NEATER_ERROR_REENTRANT && !other);
    EXPECT(strstr(neater_error_text(neater_last_error()), "handshake") != NULL);
    /* Refused, so that the program still has them. */
    neater_connection_free(state->connection);
    neater_preconnection_free(state->pre);
    neater_context_free(state->context);
}

static bool judge(const neater_certificate *chain, size_t certificates, const char *server_name, void *user)
{
    struct state *state = user;
    EXPECT(certificates == 1 && chain[0].length > 100 && ((const unsigned char *)chain[0].data)[0] == 0x30);
    snprintf(state->name, sizeof state->name, "%s", server_name);
    if (!state->judged++)
        calls_back(state);
    return state->trusts;
}

static uint32_t challenge(neater_challenge *challenge, void *user)
{
    struct state *state = user;
    state->asked++;
    EXPECT(challenge->size >= sizeof *challenge && challenge->certificates == 1 && challenge->length > 0);
    EXPECT(challenge->signature_room >= 512 && challenge->signature_length == 0 && challenge->scheme != 0);
    snprintf(state->scheme, sizeof state->scheme, "%s", challenge->scheme_name);
    if (state->answer != NEATER_CHALLENGE_SIGNED)
        return state->answer;
#ifdef WITH_OPENSSL
    if (state->key) {
        EVP_MD_CTX *digest = EVP_MD_CTX_new();
        size_t length = challenge->signature_room;
        EXPECT(EVP_DigestSignInit(digest, NULL, EVP_sha256(), NULL, state->key) == 1);
        EXPECT(EVP_DigestSign(digest, challenge->signature, &length, challenge->message, challenge->length) == 1);
        challenge->signature_length = length;
        EVP_MD_CTX_free(digest);
        return NEATER_CHALLENGE_SIGNED;
    }
#endif
    memset(challenge->signature, 7, 64);
    challenge->signature_length = 64;
    return NEATER_CHALLENGE_SIGNED;
}

/* A preconnection for TLS over TCP. */
static neater_preconnection *tls(neater_context *context, neater_security_parameters *security)
{
    static const uint32_t stacks[] = {NEATER_STACK_TLS};
    neater_preconnection *pre;
    EXPECT(neater_preconnection_new(context, &pre) == NEATER_OK);
    EXPECT(neater_preconnection_set_security(pre, security) == NEATER_OK);
    EXPECT(neater_preconnection_set_stacks(pre, stacks, 1) == NEATER_OK);
    return pre;
}

/* Connects once; returns whether it was established, and what was wrong otherwise. */
static int connects(struct state *state, neater_security_parameters *server, neater_security_parameters *client,
                    char *why, size_t room)
{
    neater_context *context = state->context;
    neater_preconnection *pre = tls(context, server);
    neater_local_endpoint *local;
    neater_listener *listener;
    neater_event event;
    char address[32];
    int established = -1;

    why[0] = 0;
    EXPECT(neater_local_endpoint_new(&local) == NEATER_OK);
    EXPECT(neater_local_endpoint_with_ip_address(local, "127.0.0.1") == NEATER_OK);
    EXPECT(neater_preconnection_add_local(pre, local) == NEATER_OK);
    EXPECT(neater_preconnection_listen(pre, &listener) == NEATER_OK);
    neater_local_endpoint_free(local);
    neater_preconnection_free(pre);
    state->pre = tls(context, client);
    snprintf(address, sizeof address, "localhost:%u", neater_listener_port(listener));
    EXPECT(neater_preconnection_add_remote_text(state->pre, address) == NEATER_OK);
    EXPECT(neater_preconnection_initiate(state->pre, &state->connection) == NEATER_OK);
    while (established < 0) {
        memset(&event, 0, sizeof event);
        event.size = sizeof event;
        EXPECT(neater_poll_event(context, &event, 10000) == 1);
        if (event.connection == state->connection && event.kind == NEATER_EVENT_READY)
            established = 1;
        if (event.connection == state->connection && event.kind == NEATER_EVENT_ESTABLISHMENT_ERROR) {
            established = 0;
            snprintf(why, room, "%s", neater_error_text(event.data.error.error));
        }
        neater_event_clear(&event);
    }
    neater_connection_free(state->connection);
    neater_preconnection_free(state->pre);
    neater_listener_free(listener);
    /* Sessions must not be resumed: then nothing is asked. */
    neater_context_flush_caches(context);
    return established;
}

/* Parameters whose sessions are not resumed. */
static neater_security_parameters *fresh(const neater_security_parameters *of)
{
    neater_security_parameters *security;
    EXPECT(neater_security_parameters_clone(of, &security) == NEATER_OK);
    EXPECT(neater_security_parameters_set_text(security, "maxCachedSessions", "0") == NEATER_OK);
    return security;
}

static void trust(struct state *state, const neater_security_parameters *identity)
{
    neater_security_parameters *server = fresh(identity), *client = fresh(identity), *alone;
    char why[1024];

    state->trusts = true;
    EXPECT(neater_security_parameters_set_trust_callback(client, judge, state, false) == NEATER_OK);
    EXPECT(connects(state, server, client, why, sizeof why) == 1);
    EXPECT(state->judged == 1 && strcmp(state->name, "localhost") == 0);

    state->trusts = false;
    EXPECT(connects(state, server, client, why, sizeof why) == 0);
    EXPECT(state->judged >= 2 && strstr(why, "trust verification refused") != NULL);

    /* The callback alone, for whom nothing is trusted otherwise; without it nothing is. */
    EXPECT(neater_security_parameters_new(&alone) == NEATER_OK);
    EXPECT(neater_security_parameters_set_text(alone, "maxCachedSessions", "0") == NEATER_OK);
    state->trusts = true;
    EXPECT(connects(state, server, alone, why, sizeof why) == 0);
    EXPECT(neater_security_parameters_set_trust_callback(alone, judge, state, true) == NEATER_OK);
    state->judged = 1;
    EXPECT(connects(state, server, alone, why, sizeof why) == 1 && state->judged == 2);
    EXPECT(neater_security_parameters_set_trust_callback(alone, NULL, NULL, true) == NEATER_OK);
    EXPECT(connects(state, server, alone, why, sizeof why) == 0 && state->judged == 2);

    neater_security_parameters_free(alone);
    neater_security_parameters_free(client);
    neater_security_parameters_free(server);
}

static void signs(struct state *state, const neater_security_parameters *identity)
{
    neater_security_parameters *server = fresh(identity), *client = fresh(identity);
    char why[1024];

    EXPECT(neater_security_parameters_set_challenge_callback(server, challenge, state) == NEATER_OK);
    state->answer = NEATER_CHALLENGE_SIGN;
    EXPECT(connects(state, server, client, why, sizeof why) == 1);
    EXPECT(state->asked == 1 && strncmp(state->scheme, "ECDSA", 5) == 0);
    state->answer = NEATER_CHALLENGE_REFUSE;
    EXPECT(connects(state, server, client, why, sizeof why) == 0 && state->asked == 2);
    state->answer = 77;
    EXPECT(connects(state, server, client, why, sizeof why) == 0 && state->asked == 3);
    /* What is no signature of that key is found out by the peer. */
    state->answer = NEATER_CHALLENGE_SIGNED;
    EXPECT(connects(state, server, client, why, sizeof why) == 0 && state->asked == 4);
    EXPECT(neater_security_parameters_set_challenge_callback(server, NULL, NULL) == NEATER_OK);
    EXPECT(connects(state, server, client, why, sizeof why) == 1 && state->asked == 4);
    neater_security_parameters_free(client);
    neater_security_parameters_free(server);
}

static char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    EXPECT(file && text && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

/* A server whose key the library does not have, and a client that is asked for its own. */
static void elsewhere(struct state *state, const char *chain_file, const char *key_file)
{
    neater_security_parameters *server, *client;
    char *chain = contents(chain_file), *key = contents(key_file), why[1024];

    EXPECT(neater_security_parameters_new(&server) == NEATER_OK);
    EXPECT(neater_security_parameters_set_text(server, "maxCachedSessions", "0") == NEATER_OK);
    EXPECT(neater_security_parameters_add_server_certificate(server, NULL, key) == NEATER_ERROR_INVALID_ARGUMENT);
    EXPECT(neater_security_parameters_add_server_certificate(server, key, NULL) == NEATER_ERROR_SECURITY);
    EXPECT(neater_security_parameters_add_server_certificate(server, chain, NULL) == NEATER_OK);
    EXPECT(neater_security_parameters_set_challenge_callback(server, challenge, state) == NEATER_OK);
    EXPECT(neater_security_parameters_new(&client) == NEATER_OK);
    EXPECT(neater_security_parameters_set_text(client, "maxCachedSessions", "0") == NEATER_OK);
    EXPECT(neater_security_parameters_set_trusted(client, chain, false) == NEATER_OK);
    /* The library cannot sign. */
    state->answer = NEATER_CHALLENGE_SIGN;
    state->asked = 0;
    EXPECT(connects(state, server, client, why, sizeof why) == 0 && state->asked == 1);
#ifdef WITH_OPENSSL
    {
        FILE *file = fopen(key_file, "rb");
        EXPECT(file);
        state->key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        fclose(file);
        EXPECT(state->key);
        state->answer = NEATER_CHALLENGE_SIGNED;
        EXPECT(connects(state, server, client, why, sizeof why) == 1 && state->asked == 2);
        EVP_PKEY_free(state->key);
        state->key = NULL;
    }
#endif
    neater_security_parameters_free(server);
    neater_security_parameters_free(client);
    free(chain);
    free(key);
}

int main(int argc, char **argv)
{
    struct state state;
    neater_security_parameters *identity;
    neater_context_options options;

    memset(&state, 0, sizeof state);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.without_policies = 1;
    EXPECT(argc == 3);
    EXPECT(neater_context_new(&options, &state.context) == NEATER_OK);
    EXPECT(neater_security_parameters_new_self_signed("localhost", &identity) == NEATER_OK);
    trust(&state, identity);
    signs(&state, identity);
    elsewhere(&state, argv[1], argv[2]);
    neater_security_parameters_free(identity);
    neater_context_free(state.context);
    return 0;
}
