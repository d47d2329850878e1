// mbedTLS with DTLS 1.2: as a client, `client PORT CERTIFICATE`, it sends a message, takes it back and prints "ok"; as a server, `server
// CERTIFICATE KEY`, it prints "port N", shakes hands with one client behind a cookie, and echoes.

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_cookie.h>
#include <mbedtls/timing.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void check(const char *what, int done) {
    if (done >= 0) return;
    char why[200];
    mbedtls_strerror(done, why, sizeof why);
    printf("failed: %s: %s\n", what, why);
    exit(1);
}

static mbedtls_entropy_context entropy;
static mbedtls_ctr_drbg_context rng;
static mbedtls_ssl_context ssl;
static mbedtls_ssl_config config;
static mbedtls_timing_delay_context timer;
static mbedtls_x509_crt certificate;
static mbedtls_pk_context key;
static mbedtls_ssl_cookie_ctx cookies;
static mbedtls_net_context fd;

static void setup(int end) {
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&rng);
    check("random", mbedtls_ctr_drbg_seed(&rng, mbedtls_entropy_func, &entropy, NULL, 0));
    mbedtls_ssl_init(&ssl);
    mbedtls_ssl_config_init(&config);
    check("defaults", mbedtls_ssl_config_defaults(&config, end, MBEDTLS_SSL_TRANSPORT_DATAGRAM, MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &rng);
    mbedtls_ssl_conf_read_timeout(&config, 10000);
}

static void shake(void) {
    check("setup", mbedtls_ssl_setup(&ssl, &config));
    mbedtls_ssl_set_bio(&ssl, &fd, mbedtls_net_send, mbedtls_net_recv, mbedtls_net_recv_timeout);
    mbedtls_ssl_set_timer_cb(&ssl, &timer, mbedtls_timing_set_delay, mbedtls_timing_get_delay);
}

static int handshake(void) {
    int done;
    do done = mbedtls_ssl_handshake(&ssl);
    while (done == MBEDTLS_ERR_SSL_WANT_READ || done == MBEDTLS_ERR_SSL_WANT_WRITE);
    return done;
}

static void client(const char *port, const char *file) {
    setup(MBEDTLS_SSL_IS_CLIENT);
    mbedtls_x509_crt_init(&certificate);
    check("certificate", mbedtls_x509_crt_parse_file(&certificate, file));
    mbedtls_ssl_conf_ca_chain(&config, &certificate, NULL);
    mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_net_init(&fd);
    check("connecting", mbedtls_net_connect(&fd, "127.0.0.1", port, MBEDTLS_NET_PROTO_UDP));
    shake();
    check("name", mbedtls_ssl_set_hostname(&ssl, "localhost"));
    check("handshake", handshake());
    const char *word = "a word from mbedTLS";
    unsigned char back[256];
    check("sending", mbedtls_ssl_write(&ssl, (const unsigned char *)word, strlen(word)));
    int came = mbedtls_ssl_read(&ssl, back, sizeof back);
    check("receiving", came);
    if (came != (int)strlen(word) || memcmp(back, word, strlen(word)) != 0) exit(1);
    printf("%s\nok\n", mbedtls_ssl_get_ciphersuite(&ssl));
    mbedtls_ssl_close_notify(&ssl);
}

static void server(const char *file, const char *key_file) {
    setup(MBEDTLS_SSL_IS_SERVER);
    mbedtls_x509_crt_init(&certificate);
    mbedtls_pk_init(&key);
    check("certificate", mbedtls_x509_crt_parse_file(&certificate, file));
    check("key", mbedtls_pk_parse_keyfile(&key, key_file, NULL));
    check("own", mbedtls_ssl_conf_own_cert(&config, &certificate, &key));
    mbedtls_ssl_cookie_init(&cookies);
    check("cookies", mbedtls_ssl_cookie_setup(&cookies, mbedtls_ctr_drbg_random, &rng));
    mbedtls_ssl_conf_dtls_cookies(&config, mbedtls_ssl_cookie_write, mbedtls_ssl_cookie_check, &cookies);
    mbedtls_net_context listener;
    mbedtls_net_init(&listener);
    mbedtls_net_init(&fd);
    check("listening", mbedtls_net_bind(&listener, "127.0.0.1", "0", MBEDTLS_NET_PROTO_UDP));
    shake();
    for (;;) {
        // The socket of the listener becomes that of the client: it is bound again for the next, at the same port.
        struct sockaddr_in at;
        socklen_t length = sizeof at;
        getsockname(listener.fd, (struct sockaddr *)&at, &length);
        printf("port %d\n", ntohs(at.sin_port));
        fflush(stdout);
        unsigned char from[16];
        size_t n = 0;
        check("accepting", mbedtls_net_accept(&listener, &fd, from, sizeof from, &n));
        check("id", mbedtls_ssl_set_client_transport_id(&ssl, from, n));
        int done = handshake();
        if (done == MBEDTLS_ERR_SSL_HELLO_VERIFY_REQUIRED) {
            mbedtls_net_free(&fd);
            check("reset", mbedtls_ssl_session_reset(&ssl));
            continue;
        }
        check("handshake", done);
        break;
    }
    unsigned char message[1024];
    int came;
    while ((came = mbedtls_ssl_read(&ssl, message, sizeof message)) > 0) {
        check("sending", mbedtls_ssl_write(&ssl, message, (size_t)came));
    }
    printf("ended\n");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    if (strcmp(argv[1], "client") == 0) client(argv[2], argv[3]);
    else server(argv[2], argv[3]);
    return 0;
}
