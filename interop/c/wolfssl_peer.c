// wolfSSL as a client of DTLS 1.2: PORT CERTIFICATE. Sends a message, takes it back, prints "ok".

#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what, WOLFSSL *ssl, int done) {
    char why[WOLFSSL_MAX_ERROR_SZ] = "";
    if (ssl != NULL) wolfSSL_ERR_error_string((unsigned long)wolfSSL_get_error(ssl, done), why);
    printf("failed: %s: %s\n", what, why);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr);
    wolfSSL_Init();
    WOLFSSL_CTX *context = wolfSSL_CTX_new(wolfDTLSv1_2_client_method());
    if (context == NULL) die("context", NULL, 0);
    if (wolfSSL_CTX_load_verify_locations(context, argv[2], NULL) != WOLFSSL_SUCCESS) die("certificate", NULL, 0);
    WOLFSSL *ssl = wolfSSL_new(context);
    wolfSSL_check_domain_name(ssl, "localhost");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0) die("socket", NULL, 0);
    wolfSSL_set_fd(ssl, fd);
    int done = wolfSSL_connect(ssl);
    if (done != WOLFSSL_SUCCESS) die("connecting", ssl, done);
    const char *word = "a word from wolfSSL";
    done = wolfSSL_write(ssl, word, (int)strlen(word));
    if (done != (int)strlen(word)) die("sending", ssl, done);
    char back[256];
    done = wolfSSL_read(ssl, back, sizeof back);
    if (done != (int)strlen(word) || memcmp(back, word, strlen(word)) != 0) die("receiving", ssl, done);
    printf("%s\nok\n", wolfSSL_get_cipher(ssl));
    wolfSSL_shutdown(ssl);
    wolfSSL_free(ssl);
    wolfSSL_CTX_free(context);
    close(fd);
    return 0;
}
