/*
 * The other end of libneat's SCTP over UDP (RFC 6951), on usrsctp:
 *   usrsctp_echo serve UDP PORT                                     sends back what it receives
 *   usrsctp_echo connect UDP PORT STREAMS MESSAGES SIZE REMOTE_UDP  compares what comes back
 * Message N goes on stream N modulo STREAMS. The server ends when its input does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

#define LONGEST 65536

static void fail(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned char byte_at(unsigned message, size_t i)
{
    return (unsigned char)(message * 37 + i * 31 + (i >> 8));
}

static void set(struct socket *so, int option, const void *value, socklen_t length)
{
    if (usrsctp_setsockopt(so, IPPROTO_SCTP, option, value, length) != 0)
        fail("an option of the socket");
}

static struct socket *open_socket(unsigned remote_udp)
{
    struct sctp_initmsg streams = {.sinit_num_ostreams = 16, .sinit_max_instreams = 2048};
    struct sctp_udpencaps over;
    int on = 1;
    struct socket *so = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
    if (so == NULL)
        fail("no socket");
    set(so, SCTP_INITMSG, &streams, sizeof(streams));
    set(so, SCTP_RECVRCVINFO, &on, sizeof(on));
    set(so, SCTP_NODELAY, &on, sizeof(on));
    memset(&over, 0, sizeof(over));
    over.sue_address.ss_family = AF_INET;
    over.sue_port = htons((uint16_t)remote_udp);
    if (remote_udp != 0)
        set(so, SCTP_REMOTE_UDP_ENCAPS_PORT, &over, sizeof(over));
    return so;
}

static void send_on(struct socket *so, unsigned stream, const unsigned char *bytes, size_t length)
{
    struct sctp_sndinfo info;
    memset(&info, 0, sizeof(info));
    info.snd_sid = (uint16_t)stream;
    if (usrsctp_sendv(so, bytes, length, NULL, 0, &info, sizeof(info), SCTP_SENDV_SNDINFO, 0) != (ssize_t)length)
        fail("send");
}

/* A whole message: its length, or 0 where the peer has ended. */
static size_t receive(struct socket *so, unsigned char *bytes, unsigned *stream)
{
    size_t length = 0;
    for (;;) {
        struct sctp_rcvinfo info;
        socklen_t from = 0, size = sizeof(info);
        unsigned type = 0;
        int flags = 0;
        ssize_t n = usrsctp_recvv(so, bytes + length, LONGEST - length, NULL, &from, &info, &size, &type, &flags);
        if (n < 0)
            fail("receive");
        if (n == 0)
            return 0;
        if (type != SCTP_RECVV_RCVINFO)
            fail("no word of the stream");
        length += (size_t)n;
        *stream = info.rcv_sid;
        if (flags & MSG_EOR)
            return length;
    }
}

static void *serve(void *argument)
{
    static unsigned char bytes[LONGEST];
    struct socket *so, *listener = argument;
    unsigned messages = 0, streams = 0, stream = 0;
    size_t length;
    so = usrsctp_accept(listener, NULL, NULL);
    if (so == NULL)
        fail("accept");
    while ((length = receive(so, bytes, &stream)) > 0) {
        messages++;
        if (stream >= streams)
            streams = stream + 1;
        send_on(so, stream, bytes, length);
    }
    printf("%u messages on %u streams\n", messages, streams);
    fflush(stdout);
    usrsctp_close(so);
    return NULL;
}

static void compare(struct socket *so, unsigned streams, unsigned messages, size_t size)
{
    static unsigned char bytes[LONGEST];
    /* The next message of each stream. */
    unsigned next[16], message, stream = 0;
    size_t i;
    for (i = 0; i < 16; i++)
        next[i] = (unsigned)i;
    for (message = 0; message < messages; message++) {
        for (i = 0; i < size; i++)
            bytes[i] = byte_at(message, i);
        send_on(so, message % streams, bytes, size);
    }
    for (message = 0; message < messages; message++) {
        if (receive(so, bytes, &stream) != size)
            fail("a message of another length");
        if (stream >= streams)
            fail("a stream that nothing was sent on");
        for (i = 0; i < size; i++)
            if (bytes[i] != byte_at(next[stream], i))
                fail("something else has come back");
        next[stream] += streams;
    }
    printf("%u messages back on %u streams\n", messages, streams);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    struct socket *so;
    int serves = argc == 4 && strcmp(argv[1], "serve") == 0, turns;
    if (!serves && (argc != 8 || strcmp(argv[1], "connect") != 0)) {
        fprintf(stderr, "usage: %s serve UDP PORT | connect UDP PORT STREAMS MESSAGES SIZE REMOTE_UDP\n", argv[0]);
        return 2;
    }
    usrsctp_init((uint16_t)atoi(argv[2]), NULL, NULL);
    memset(&at, 0, sizeof(at));
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)atoi(argv[3]));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (serves) {
        pthread_t thread;
        char c;
        so = open_socket(0);
        if (usrsctp_bind(so, (struct sockaddr *)&at, sizeof(at)) != 0 || usrsctp_listen(so, 1) != 0)
            fail("listen");
        if (pthread_create(&thread, NULL, serve, so) != 0)
            fail("no thread");
        printf("listening\n");
        fflush(stdout);
        while (read(0, &c, 1) > 0)
            ;
        pthread_join(thread, NULL);
    } else {
        unsigned streams = (unsigned)atoi(argv[4]);
        size_t size = (size_t)atoi(argv[6]);
        if (streams < 1 || streams > 16 || size < 1 || size > LONGEST)
            fail("1 to 16 streams, and messages of 1 to 65536 bytes");
        so = open_socket((unsigned)atoi(argv[7]));
        if (usrsctp_connect(so, (struct sockaddr *)&at, sizeof(at)) != 0)
            fail("connect");
        compare(so, streams, (unsigned)atoi(argv[5]), size);
    }
    usrsctp_close(so);
    for (turns = 0; turns < 50 && usrsctp_finish() != 0; turns++)
        usleep(100000);
    return 0;
}
