// An SCTP peer on usrsctp, over UDP encapsulation (RFC 6951): what the tests of our SCTP talk to.
//
//   sctp_peer listen  --udp N --port N [options]
//   sctp_peer connect --udp N --port N --remote-udp N [--address A] [options]
//
// It has one association, takes commands on its standard input, a line each, and says what happens on its standard
// output, a JSON object a line. A message is named by its number, which is its payload protocol identifier; its bytes
// follow from that (see `fill` in messages.h), and who receives it says its length and FNV-1a hash.
//
// Commands: send COUNT STREAMS SIZE[-SIZE] o|u none|ttl|rtx VALUE | reset out|in|both [STREAM...] | add OUT IN |
//           heartbeat MS | shutdown | abort | status | end

#include "messages.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

// Not in the installed header, but in the library (RFC 8260 section 4.3.1).
#define PEER_INTERLEAVING_SUPPORTED 0x00001206

struct options {
    int listen;
    uint16_t udp, remote_udp, port;
    const char *address, *local;
    uint16_t out, in, bind;
    int interleave, ecn, pr, reconf, auth, asconf, nodelay, nr_sack, cmt, pf;
    int scheduler;
    int auth_chunk;
    int rto;
    int buffer;
};

static struct options opt = {
    .address = "127.0.0.1", .out = 16, .in = 2048, .pr = 1, .reconf = 1, .auth = 1, .asconf = 1, .ecn = 1,
    .nodelay = 1, .pf = -1, .scheduler = -1, .auth_chunk = -1,
    .buffer = 8 << 20,
};

static void set(struct socket *so, int option, const void *value, socklen_t len, const char *what) {
    if (usrsctp_setsockopt(so, IPPROTO_SCTP, option, value, len) != 0) die(what);
}

static void set_assoc(struct socket *so, int option, uint32_t value, const char *what) {
    struct sctp_assoc_value v = {.assoc_id = SCTP_FUTURE_ASSOC, .assoc_value = value};
    set(so, option, &v, sizeof v, what);
}

static void configure(struct socket *so) {
    int on = 1;
    if (usrsctp_setsockopt(so, SOL_SOCKET, SO_SNDBUF, &opt.buffer, sizeof opt.buffer) != 0) die("SO_SNDBUF");
    if (usrsctp_setsockopt(so, SOL_SOCKET, SO_RCVBUF, &opt.buffer, sizeof opt.buffer) != 0) die("SO_RCVBUF");
    set(so, SCTP_RECVRCVINFO, &on, sizeof on, "RECVRCVINFO");
    set(so, SCTP_NODELAY, &opt.nodelay, sizeof opt.nodelay, "NODELAY");
    if (opt.interleave) {
        int level = 2;
        set(so, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level, "FRAGMENT_INTERLEAVE");
        set_assoc(so, PEER_INTERLEAVING_SUPPORTED, 1, "INTERLEAVING_SUPPORTED");
    }
    uint32_t point = opt.buffer / 2;
    set(so, SCTP_PARTIAL_DELIVERY_POINT, &point, sizeof point, "PARTIAL_DELIVERY_POINT");
    set_assoc(so, SCTP_PR_SUPPORTED, opt.pr, "PR_SUPPORTED");
    set_assoc(so, SCTP_ECN_SUPPORTED, opt.ecn, "ECN_SUPPORTED");
    // Address configuration needs authentication (RFC 5061 section 4.2.7): off in this order.
    set_assoc(so, SCTP_ASCONF_SUPPORTED, opt.asconf, "ASCONF_SUPPORTED");
    set_assoc(so, SCTP_AUTH_SUPPORTED, opt.auth, "AUTH_SUPPORTED");
    set_assoc(so, SCTP_RECONFIG_SUPPORTED, opt.reconf, "RECONFIG_SUPPORTED");
    if (opt.reconf) {
        uint32_t all = SCTP_ENABLE_RESET_STREAM_REQ | SCTP_ENABLE_CHANGE_ASSOC_REQ | SCTP_ENABLE_RESET_ASSOC_REQ;
        set_assoc(so, SCTP_ENABLE_STREAM_RESET, all, "ENABLE_STREAM_RESET");
    }
    set_assoc(so, SCTP_NRSACK_SUPPORTED, opt.nr_sack, "NRSACK_SUPPORTED");
    if (opt.rto > 0) {
        struct sctp_rtoinfo rto = {.srto_initial = opt.rto * 3, .srto_min = opt.rto, .srto_max = opt.rto * 20};
        set(so, SCTP_RTOINFO, &rto, sizeof rto, "RTOINFO");
    }
    if (opt.auth_chunk >= 0) {
        struct sctp_authchunk chunk = {.sauth_chunk = (uint8_t)opt.auth_chunk};
        set(so, SCTP_AUTH_CHUNK, &chunk, sizeof chunk, "AUTH_CHUNK");
    }
    if (opt.scheduler >= 0) set_assoc(so, SCTP_PLUGGABLE_SS, opt.scheduler, "PLUGGABLE_SS");
    struct sctp_initmsg init = {.sinit_num_ostreams = opt.out, .sinit_max_instreams = opt.in};
    set(so, SCTP_INITMSG, &init, sizeof init, "INITMSG");
    if (opt.remote_udp != 0) {
        struct sctp_udpencaps encaps = {.sue_port = htons(opt.remote_udp)};
        encaps.sue_address.ss_family = AF_INET;
        set(so, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps, "REMOTE_UDP_ENCAPS_PORT");
    }
    static const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_PEER_ADDR_CHANGE, SCTP_SHUTDOWN_EVENT, SCTP_SEND_FAILED_EVENT, SCTP_STREAM_RESET_EVENT,
                                      SCTP_STREAM_CHANGE_EVENT, SCTP_ADAPTATION_INDICATION, SCTP_SENDER_DRY_EVENT};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct sctp_event event = {.se_assoc_id = SCTP_FUTURE_ASSOC, .se_type = events[i], .se_on = 1};
        set(so, SCTP_EVENT, &event, sizeof event, "EVENT");
    }
}

static void notified(const union sctp_notification *n) {
    switch (n->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE: {
        static const char *const states[] = {"?", "up", "lost", "restart", "closed", "refused"};
        unsigned state = n->sn_assoc_change.sac_state;
        say("{\"event\":\"%s\",\"out\":%u,\"in\":%u,\"error\":%u}", states[state < 6 ? state : 0],
            n->sn_assoc_change.sac_outbound_streams, n->sn_assoc_change.sac_inbound_streams, n->sn_assoc_change.sac_error);
        break;
    }
    case SCTP_PEER_ADDR_CHANGE: {
        static const char *const states[] = {"?", "available", "unreachable", "removed", "added", "primary", "confirmed"};
        char address[INET6_ADDRSTRLEN] = "";
        const struct sockaddr_in *in = (const struct sockaddr_in *)&n->sn_paddr_change.spc_aaddr;
        if (in->sin_family == AF_INET) inet_ntop(AF_INET, &in->sin_addr, address, sizeof address);
        unsigned state = n->sn_paddr_change.spc_state;
        say("{\"event\":\"path\",\"address\":\"%s\",\"state\":\"%s\"}", address, states[state < 7 ? state : 0]);
        break;
    }
    case SCTP_SHUTDOWN_EVENT: say("{\"event\":\"shutdown\"}"); break;
    case SCTP_SENDER_DRY_EVENT: say("{\"event\":\"dry\"}"); break;
    case SCTP_ADAPTATION_INDICATION:
        say("{\"event\":\"adaptation\",\"code\":%u}", n->sn_adaptation_event.sai_adaptation_ind);
        break;
    case SCTP_SEND_FAILED_EVENT:
        say("{\"event\":\"send-failed\",\"ppid\":%u,\"flags\":%u}", ntohl(n->sn_send_failed_event.ssfe_info.snd_ppid),
            n->sn_send_failed_event.ssfe_flags);
        break;
    case SCTP_STREAM_RESET_EVENT:
        say("{\"event\":\"reset\",\"flags\":%u,\"streams\":%u}", n->sn_strreset_event.strreset_flags,
            (unsigned)((n->sn_strreset_event.strreset_length - sizeof(struct sctp_stream_reset_event)) / 2));
        break;
    case SCTP_STREAM_CHANGE_EVENT:
        say("{\"event\":\"streams\",\"flags\":%u,\"in\":%u,\"out\":%u}", n->sn_strchange_event.strchange_flags,
            n->sn_strchange_event.strchange_instrms, n->sn_strchange_event.strchange_outstrms);
        break;
    default: say("{\"event\":\"notification\",\"type\":%u}", n->sn_header.sn_type);
    }
}

static void *receive(void *argument) {
    struct socket *so = argument;
    unsigned char *buffer = malloc(MESSAGE_MAX);
    if (buffer == NULL) die("malloc");
    for (;;) {
        struct sctp_rcvinfo info = {0};
        socklen_t from_len = 0, info_len = sizeof info;
        unsigned int info_type = 0;
        int flags = 0;
        ssize_t n = usrsctp_recvv(so, buffer, MESSAGE_MAX, NULL, &from_len, &info, &info_len, &info_type, &flags);
        if (n <= 0) {
            say("{\"event\":\"eof\",\"error\":\"%s\"}", n < 0 ? strerror(errno) : "");
            free(buffer);
            return NULL;
        }
        if (flags & MSG_NOTIFICATION) {
            notified((union sctp_notification *)buffer);
            continue;
        }
        received(buffer, (size_t)n, (flags & MSG_EOR) != 0, (info.rcv_flags & SCTP_UNORDERED) != 0, info.rcv_sid, info.rcv_ssn,
                 ntohl(info.rcv_ppid));
    }
}

static uint32_t next_number = 1;

static void send_messages(struct socket *so, const char *line) {
    struct batch batch;
    if (!read_batch(line, &batch)) return;
    unsigned char *bytes = malloc(batch.to);
    if (bytes == NULL) die("malloc");
    for (unsigned i = 0; i < batch.count; i++, next_number++) {
        size_t len = batch_len(&batch, next_number);
        fill(bytes, next_number, len);
        struct sctp_sendv_spa spa = {.sendv_flags = SCTP_SEND_SNDINFO_VALID};
        spa.sendv_sndinfo.snd_sid = (uint16_t)(next_number % batch.streams);
        spa.sendv_sndinfo.snd_ppid = htonl(next_number);
        spa.sendv_sndinfo.snd_flags = batch.unordered ? SCTP_UNORDERED : 0;
        if (strcmp(batch.policy, "none") != 0) {
            spa.sendv_flags |= SCTP_SEND_PRINFO_VALID;
            spa.sendv_prinfo.pr_policy = strcmp(batch.policy, "ttl") == 0 ? SCTP_PR_SCTP_TTL : SCTP_PR_SCTP_RTX;
            spa.sendv_prinfo.pr_value = batch.value;
        }
        ssize_t sent = -1;
        // A stream that is about to begin anew takes nothing until the other side has answered.
        for (int tries = 0; tries < 1000; tries++) {
            sent = usrsctp_sendv(so, bytes, len, NULL, 0, &spa, sizeof spa, SCTP_SENDV_SPA, 0);
            if (sent >= 0 || errno != EAGAIN) break;
            usleep(5000);
        }
        if (sent != (ssize_t)len) {
            say("{\"event\":\"failed\",\"what\":\"send\",\"ppid\":%u,\"why\":\"%s\"}", next_number, strerror(errno));
            break;
        }
    }
    free(bytes);
    say("{\"event\":\"sent\",\"next\":%u}", next_number);
}

static void reset(struct socket *so, char *line) {
    char *direction = strtok(line, " \n"), *number;
    uint16_t streams[1024];
    size_t count = 0;
    while ((number = strtok(NULL, " \n")) != NULL && count < 1024) streams[count++] = (uint16_t)atoi(number);
    size_t len = sizeof(struct sctp_reset_streams) + count * sizeof *streams;
    struct sctp_reset_streams *request = calloc(1, len);
    if (request == NULL || direction == NULL) die("reset");
    int in = strcmp(direction, "out") != 0, out = strcmp(direction, "in") != 0;
    request->srs_flags = (in ? SCTP_STREAM_RESET_INCOMING : 0) | (out ? SCTP_STREAM_RESET_OUTGOING : 0);
    request->srs_number_streams = (uint16_t)count;
    memcpy(request->srs_stream_list, streams, count * sizeof *streams);
    int result = usrsctp_setsockopt(so, IPPROTO_SCTP, SCTP_RESET_STREAMS, request, (socklen_t)len);
    say("{\"event\":\"reset-asked\",\"why\":\"%s\"}", result == 0 ? "" : strerror(errno));
    free(request);
}

static void status(struct socket *so) {
    struct sctp_status s = {0};
    socklen_t len = sizeof s;
    if (usrsctp_getsockopt(so, IPPROTO_SCTP, SCTP_STATUS, &s, &len) != 0) {
        say("{\"event\":\"status\",\"why\":\"%s\"}", strerror(errno));
        return;
    }
    struct sctpstat stat;
    usrsctp_get_stat(&stat);
    say("{\"event\":\"status\",\"state\":%d,\"rwnd\":%u,\"unacked\":%u,\"pending\":%u,\"in\":%u,\"out\":%u,\"fragmentation\":%u,"
        "\"badsum\":%u,\"badvtag\":%u}",
        s.sstat_state, s.sstat_rwnd, s.sstat_unackdata, s.sstat_penddata, s.sstat_instrms, s.sstat_outstrms,
        s.sstat_fragmentation_point, stat.sctps_badsum, stat.sctps_badvtag);
}

static void obey(struct socket *so) {
    char line[8192];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *word = strtok(line, " \n"), *rest = strtok(NULL, "\n");
        if (word == NULL) continue;
        if (rest == NULL) rest = "";
        if (strcmp(word, "send") == 0) {
            send_messages(so, rest);
        } else if (strcmp(word, "reset") == 0) {
            reset(so, rest);
        } else if (strcmp(word, "add") == 0) {
            unsigned out = 0, in = 0;
            sscanf(rest, "%u %u", &out, &in);
            struct sctp_add_streams add = {.sas_outstrms = (uint16_t)out, .sas_instrms = (uint16_t)in};
            int result = usrsctp_setsockopt(so, IPPROTO_SCTP, SCTP_ADD_STREAMS, &add, sizeof add);
            say("{\"event\":\"add-asked\",\"why\":\"%s\"}", result == 0 ? "" : strerror(errno));
        } else if (strcmp(word, "heartbeat") == 0) {
            struct sctp_paddrparams p = {.spp_flags = SPP_HB_ENABLE, .spp_hbinterval = (uint32_t)atoi(rest)};
            p.spp_address.ss_family = AF_INET;
            set(so, SCTP_PEER_ADDR_PARAMS, &p, sizeof p, "PEER_ADDR_PARAMS");
        } else if (strcmp(word, "shutdown") == 0) {
            if (usrsctp_shutdown(so, SHUT_WR) != 0) say("{\"event\":\"failed\",\"what\":\"shutdown\",\"why\":\"%s\"}", strerror(errno));
        } else if (strcmp(word, "abort") == 0) {
            struct sctp_sndinfo info = {.snd_flags = SCTP_ABORT};
            usrsctp_sendv(so, "", 0, NULL, 0, &info, sizeof info, SCTP_SENDV_SNDINFO, 0);
            say("{\"event\":\"aborted\"}");
        } else if (strcmp(word, "status") == 0) {
            status(so);
        } else if (strcmp(word, "end") == 0) {
            return;
        } else {
            say("{\"event\":\"failed\",\"what\":\"%s\",\"why\":\"no such command\"}", word);
        }
    }
}

static void read_options(int argc, char **argv) {
    if (argc < 2 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
        fprintf(stderr, "usage: sctp_peer listen|connect --udp N --port N [--remote-udp N] [--address A] [--bind N] [--streams OUT,IN]\n"
                        "       [--interleave] [--no-pr] [--no-ecn] [--no-auth] [--no-asconf] [--no-reconf] [--scheduler N]\n"
                        "       [--nr-sack] [--cmt] [--pf ERRORS] [--local A,A] [--auth-chunk TYPE] [--rto MIN_MS] [--buffer BYTES]\n");
        exit(2);
    }
    opt.listen = strcmp(argv[1], "listen") == 0;
    for (int i = 2; i < argc; i++) {
        const char *name = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--interleave") == 0) opt.interleave = 1;
        else if (strcmp(name, "--no-pr") == 0) opt.pr = 0;
        else if (strcmp(name, "--no-ecn") == 0) opt.ecn = 0;
        else if (strcmp(name, "--no-auth") == 0) opt.auth = opt.asconf = 0;
        else if (strcmp(name, "--no-asconf") == 0) opt.asconf = 0;
        else if (strcmp(name, "--no-reconf") == 0) opt.reconf = 0;
        else if (strcmp(name, "--nr-sack") == 0) opt.nr_sack = 1;
        else if (strcmp(name, "--cmt") == 0) opt.cmt = 1;
        else if (i++, strcmp(name, "--udp") == 0) opt.udp = (uint16_t)atoi(value);
        else if (strcmp(name, "--remote-udp") == 0) opt.remote_udp = (uint16_t)atoi(value);
        else if (strcmp(name, "--port") == 0) opt.port = (uint16_t)atoi(value);
        else if (strcmp(name, "--bind") == 0) opt.bind = (uint16_t)atoi(value);
        else if (strcmp(name, "--address") == 0) opt.address = value;
        else if (strcmp(name, "--local") == 0) opt.local = value;
        else if (strcmp(name, "--pf") == 0) opt.pf = atoi(value);
        else if (strcmp(name, "--streams") == 0) sscanf(value, "%hu,%hu", &opt.out, &opt.in);
        else if (strcmp(name, "--scheduler") == 0) opt.scheduler = atoi(value);
        else if (strcmp(name, "--auth-chunk") == 0) opt.auth_chunk = atoi(value);
        else if (strcmp(name, "--rto") == 0) opt.rto = atoi(value);
        else if (strcmp(name, "--buffer") == 0) opt.buffer = atoi(value);
        else {
            fprintf(stderr, "no such option: %s\n", name);
            exit(2);
        }
    }
}

// Binds to the listed addresses, with a comma in between, or to all at this port.
static void bind_to(struct socket *so, uint16_t port) {
    struct sockaddr_in all[8] = {{.sin_family = AF_INET, .sin_port = htons(port)}};
    if (opt.local == NULL) {
        if (usrsctp_bind(so, (struct sockaddr *)all, sizeof *all) != 0) die("bind");
        return;
    }
    char list[256];
    snprintf(list, sizeof list, "%s", opt.local);
    int count = 0;
    for (char *one = strtok(list, ","); one != NULL && count < 8; one = strtok(NULL, ","), count++) {
        all[count] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        if (inet_pton(AF_INET, one, &all[count].sin_addr) != 1) die("local address");
    }
    if (usrsctp_bindx(so, (struct sockaddr *)all, count, SCTP_BINDX_ADD_ADDR) != 0) die("bindx");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    usrsctp_init(opt.udp, NULL, NULL);
    // Otherwise it takes packets with wrong bits on loopback, and the tests make such.
    usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
    if (opt.pf >= 0) usrsctp_sysctl_set_sctp_path_pf_threshold((uint32_t)opt.pf);
    if (opt.cmt) usrsctp_sysctl_set_sctp_cmt_on_off(SCTP_CMT_BASE);
    struct socket *so = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
    if (so == NULL) die("socket");
    configure(so);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opt.port)};
    if (opt.listen) {
        bind_to(so, opt.port);
        if (usrsctp_listen(so, 1) != 0) die("listen");
        say("{\"event\":\"ready\"}");
        struct socket *accepted = usrsctp_accept(so, NULL, NULL);
        if (accepted == NULL) die("accept");
        usrsctp_close(so);
        so = accepted;
    } else {
        if (inet_pton(AF_INET, opt.address, &address.sin_addr) != 1) die("address");
        if (opt.bind != 0) bind_to(so, opt.bind);
        say("{\"event\":\"ready\"}");
        if (usrsctp_connect(so, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    }
    say("{\"event\":\"connected\"}");
    pthread_t receiver;
    if (pthread_create(&receiver, NULL, receive, so) != 0) die("thread");
    obey(so);
    usrsctp_close(so);
    for (int i = 0; i < 50 && usrsctp_finish() != 0; i++) usleep(100000);
    say("{\"event\":\"ended\"}");
    return 0;
}
