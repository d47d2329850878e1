/* The peer on usrsctp over UDP: one association for `send` and `recv`, as many as asked for `client` and `server`. */
#include "common.h"

#include <pthread.h>
#include <usrsctp.h>

/* The SCTP port of the server. */
#define PORT 5001
/* What a socket may buffer, each way: that of the peer for interoperation. Other sizes were not compared. */
#define SOCKET_BUFFER (8 << 20)

static void set_buffers(struct socket *so) {
    int size = SOCKET_BUFFER, on = 1;
    if (usrsctp_setsockopt(so, SOL_SOCKET, SO_SNDBUF, &size, sizeof size)) fail("SO_SNDBUF", errno);
    if (usrsctp_setsockopt(so, SOL_SOCKET, SO_RCVBUF, &size, sizeof size)) fail("SO_RCVBUF", errno);
    if (usrsctp_setsockopt(so, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof on)) fail("SCTP_NODELAY", errno);
}

static void encapsulate(struct socket *so, uint16_t port) {
    struct sctp_udpencaps encaps = {.sue_port = port};
    encaps.sue_address.ss_family = AF_INET;
    if (usrsctp_setsockopt(so, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps)) fail("encapsulation", errno);
}

static struct socket *open_socket(void) {
    struct socket *so = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
    if (!so) fail("socket", errno);
    set_buffers(so);
    return so;
}

static struct sockaddr_in peer_of(const struct args *a) {
    struct sockaddr_in address = *(const struct sockaddr_in *)&a->addr;
    address.sin_port = htons(PORT);
    return address;
}

static uint16_t udp_port(const struct args *a) { return ((const struct sockaddr_in *)&a->addr)->sin_port; }

/* The library stays until all of its associations are gone. */
static void finish(void) {
    for (int i = 0; i < 200 && usrsctp_finish(); i++) usleep(10000);
}

static int send_all(const struct args *a) {
    struct socket *so = open_socket();
    encapsulate(so, udp_port(a));
    struct sockaddr_in to = peer_of(a);
    if (usrsctp_connect(so, (struct sockaddr *)&to, sizeof to)) fail("connect", errno);
    char *message = malloc((size_t)a->object);
    if (!message) fail("malloc", ENOMEM);
    memset(message, 0x5a, (size_t)a->object);
    int64_t start = now_ns();
    for (long long left = a->bytes; left > 0;) {
        size_t n = (size_t)(left < a->object ? left : a->object);
        if (usrsctp_sendv(so, message, n, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0) != (ssize_t)n) fail("sendv", errno);
        left -= (long long)n;
    }
    usrsctp_shutdown(so, SHUT_WR);
    /* The receiver ends the association when it has everything. */
    struct sctp_rcvinfo info;
    char end[64];
    for (;;) {
        socklen_t from = 0, len = sizeof info;
        unsigned type = 0;
        int flags = 0;
        if (usrsctp_recvv(so, end, sizeof end, NULL, &from, &info, &len, &type, &flags) <= 0) break;
    }
    int64_t ns = now_ns() - start;
    usrsctp_close(so);
    finish();
    struct sctpstat stat;
    usrsctp_get_stat(&stat);
    fprintf(stderr, "packets out %u in %u, retransmitted %u\n", stat.sctps_outpackets, stat.sctps_inpackets, stat.sctps_sendretransdata);
    return say_result("usrsctp", a, 1, 0, a->bytes, ns, NULL);
}

static struct socket *listen_socket(struct args *a) {
    struct socket *so = open_socket();
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (usrsctp_bind(so, (struct sockaddr *)&local, sizeof local)) fail("bind", errno);
    if (usrsctp_listen(so, BACKLOG)) fail("listen", errno);
    say_listening(&a->addr);
    return so;
}

static int recv_all(struct args *a) {
    struct socket *listener = listen_socket(a);
    struct socket *so = usrsctp_accept(listener, NULL, NULL);
    if (!so) fail("accept", errno);
    size_t room = (size_t)a->object > BUFFER ? (size_t)a->object : BUFFER;
    char *message = malloc(room);
    if (!message) fail("malloc", ENOMEM);
    int64_t start = 0, end = 0;
    long long bytes = 0;
    for (;;) {
        struct sctp_rcvinfo info;
        socklen_t from = 0, len = sizeof info;
        unsigned type = 0;
        int flags = 0;
        ssize_t n = usrsctp_recvv(so, message, room, NULL, &from, &info, &len, &type, &flags);
        if (n <= 0) break;
        end = now_ns();
        if (!start) start = end;
        bytes += n;
    }
    usrsctp_close(so);
    usrsctp_close(listener);
    finish();
    return say_result("usrsctp", a, 1, a->bytes && bytes != a->bytes, bytes, end - start, NULL);
}

/* Associations that came up, and that failed, as the library's thread says. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long up, over;

static void client_event(struct socket *so, void *argument, int flags) {
    (void)argument;
    (void)flags;
    int events = usrsctp_get_events(so);
    int *state = argument;
    pthread_mutex_lock(&lock);
    if (*state == 0 && (events & SCTP_EVENT_WRITE)) {
        *state = 1;
        up++;
        pthread_cond_signal(&changed);
    }
    if (*state == 1 && (events & SCTP_EVENT_READ)) {
        *state = 2;
        over++;
        pthread_cond_signal(&changed);
    }
    pthread_mutex_unlock(&lock);
}

static void wait_for(long *count, long want) {
    pthread_mutex_lock(&lock);
    while (*count < want) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static int client(const struct args *a) {
    struct socket **flows = calloc((size_t)a->flows, sizeof *flows);
    int *states = calloc((size_t)a->flows, sizeof *states);
    if (!flows || !states) fail("calloc", ENOMEM);
    struct sockaddr_in to = peer_of(a);
    ready(a);
    int64_t start = now_ns();
    for (long round = 0; round < a->rounds; round++) {
        up = over = 0;
        for (long i = 0; i < a->flows; i++) {
            states[i] = 0;
            flows[i] = open_socket();
            encapsulate(flows[i], udp_port(a));
            usrsctp_set_non_blocking(flows[i], 1);
            usrsctp_set_upcall(flows[i], client_event, &states[i]);
            if (usrsctp_connect(flows[i], (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) fail("connect", errno);
        }
        wait_for(&up, a->flows);
        all_open(a, a->flows);
        for (long i = 0; i < a->flows; i++) usrsctp_shutdown(flows[i], SHUT_WR);
        wait_for(&over, a->flows);
        for (long i = 0; i < a->flows; i++) usrsctp_close(flows[i]);
    }
    int64_t ns = now_ns() - start;
    finish();
    return say_result("usrsctp", a, a->flows * a->rounds, 0, 0, ns, NULL);
}

static int server(struct args *a) {
    struct socket *listener = listen_socket(a);
    long want = a->flows * a->rounds, done = 0;
    while (done < want) {
        struct socket *so = usrsctp_accept(listener, NULL, NULL);
        if (!so) fail("accept", errno);
        usrsctp_close(so);
        done++;
    }
    usrsctp_close(listener);
    finish();
    return say_result("usrsctp", a, done, 0, 0, 0, NULL);
}

/* Any UDP port that is free now: the library wants a number. */
static uint16_t free_port(const struct args *a) {
    struct sockaddr_in address = *(const struct sockaddr_in *)&a->addr;
    address.sin_port = 0;
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || getsockname(fd, (struct sockaddr *)&address, &len))
        fail("a free port", errno);
    close(fd);
    return ntohs(address.sin_port);
}

int main(int argc, char **argv) {
    struct args a = parse_args(argc, argv);
    if (a.addr.ss_family != AF_INET) usage("this peer speaks IPv4");
    int serves = !strcmp(a.mode, "server") || !strcmp(a.mode, "recv");
    uint16_t port = udp_port(&a);
    if (!serves || !port) port = htons(free_port(&a));
    if (serves) ((struct sockaddr_in *)&a.addr)->sin_port = port;
    usrsctp_init(ntohs(port), NULL, NULL);
    /* On loopback it would leave checksums out, and measure another protocol than the others. */
    usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
    usrsctp_sysctl_set_sctp_ecn_enable(0);
    if (!strcmp(a.mode, "send")) return send_all(&a);
    if (!strcmp(a.mode, "recv")) return recv_all(&a);
    if (!strcmp(a.mode, "client")) return client(&a);
    if (!strcmp(a.mode, "server")) return server(&a);
    usage("unknown mode");
    return 2;
}
