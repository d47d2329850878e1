// An SCTP peer on Linux' kernel: what `linux_guest.c` runs in a virtual machine for the tests of our SCTP.
//
//   listen  --port N [options]
//   connect --remote A[,A] --remote-port N [--port N] [options]
//
// It has one association, on a socket of either style of RFC 6458, and speaks as `sctp_peer.c` does.
//
// Commands: send COUNT STREAMS SIZE[-SIZE] o|u none|ttl|rtx|prio VALUE | reset out|in|both [STREAM...] | add OUT IN |
//           heartbeat | heartbeats MS | weight STREAM VALUE | address add|remove|prefer ADDRESS | primary ADDRESS | key ID SECRET |
//           use-key ID | shutdown | abort | status | end

#include "linux_peer.h"
#include "messages.h"

#include <arpa/inet.h>
#include <linux/sctp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES_MAX 8

struct addresses {
    unsigned count;
    struct sockaddr_storage list[ADDRESSES_MAX];
};

static struct {
    int listen, one, v6;
    struct addresses local, remote;
    uint16_t port, remote_port, udp, out, in;
    int interleave, pr, reconf, auth, asconf, ecn;
    int scheduler, auth_chunk, hmac, rto, buffer, fragment;
    unsigned adaptation;
    char key[64];
} opt;

static int so = -1;             // Of the association.
static sctp_assoc_t association; // Its number, on a socket for many.

static socklen_t sized(const struct sockaddr_storage *a) {
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int read_address(const char *text, uint16_t port, struct sockaddr_storage *to) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET, v4->sin_port = htons(port);
        return 1;
    }
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6, v6->sin6_port = htons(port);
        return 1;
    }
    return 0;
}

static void read_addresses(const char *text, struct addresses *to) {
    char copy[512], *rest, *word;
    snprintf(copy, sizeof copy, "%s", text);
    for (word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (to->count == ADDRESSES_MAX || !read_address(word, 0, &to->list[to->count])) die(word);
        if (to->list[to->count].ss_family == AF_INET6) opt.v6 = 1;
        to->count++;
    }
}

// The addresses as bindx and connectx want them: one after the other, each with its own length.
static socklen_t packed(const struct addresses *from, uint16_t port, unsigned char *to) {
    socklen_t len = 0;
    for (unsigned i = 0; i < from->count; i++) {
        struct sockaddr_storage a = from->list[i];
        ((struct sockaddr_in *)&a)->sin_port = htons(port);
        memcpy(to + len, &a, sized(&a));
        len += sized(&a);
    }
    return len;
}

static void show(const struct sockaddr_storage *a, char *to, socklen_t len) {
    const void *bytes = a->ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                                                 : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
    if (inet_ntop(a->ss_family, bytes, to, len) == NULL) snprintf(to, len, "?");
}

static void set(int fd, int option, const void *value, socklen_t len, const char *what) {
    if (setsockopt(fd, IPPROTO_SCTP, option, value, len) != 0) die(what);
}

static void set_assoc(int fd, int option, uint32_t value, const char *what) {
    struct sctp_assoc_value v = {.assoc_id = SCTP_FUTURE_ASSOC, .assoc_value = value};
    set(fd, option, &v, sizeof v, what);
}

static void set_key(int fd, sctp_assoc_t id, uint16_t number, const char *secret) {
    size_t len = strlen(secret);
    struct sctp_authkey *key = calloc(1, sizeof *key + len);
    if (key == NULL) die("calloc");
    key->sca_assoc_id = id, key->sca_keynumber = number, key->sca_keylength = (uint16_t)len;
    memcpy(key->sca_key, secret, len);
    set(fd, SCTP_AUTH_KEY, key, (socklen_t)(sizeof *key + len), "AUTH_KEY");
    free(key);
}

static void configure_auth(int fd) {
    set_assoc(fd, SCTP_AUTH_SUPPORTED, 1, "AUTH_SUPPORTED");
    struct {
        uint32_t count;
        uint16_t idents[2];
    } hmac = {.count = opt.hmac == 1 ? 1 : 2, .idents = {SCTP_AUTH_HMAC_ID_SHA256, SCTP_AUTH_HMAC_ID_SHA1}};
    if (opt.hmac == 1) hmac.idents[0] = SCTP_AUTH_HMAC_ID_SHA1;
    set(fd, SCTP_HMAC_IDENT, &hmac, sizeof hmac, "HMAC_IDENT");
    if (opt.auth_chunk >= 0) {
        struct sctp_authchunk chunk = {.sauth_chunk = (uint8_t)opt.auth_chunk};
        set(fd, SCTP_AUTH_CHUNK, &chunk, sizeof chunk, "AUTH_CHUNK");
    }
    if (opt.key[0] != 0) {
        struct sctp_authkeyid id = {.scact_keynumber = 1};
        set_key(fd, SCTP_FUTURE_ASSOC, 1, opt.key);
        set(fd, SCTP_AUTH_ACTIVE_KEY, &id, sizeof id, "AUTH_ACTIVE_KEY");
    }
}

static void configure(int fd) {
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &opt.buffer, sizeof opt.buffer) != 0) die("SO_SNDBUF");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &opt.buffer, sizeof opt.buffer) != 0) die("SO_RCVBUF");
    set(fd, SCTP_RECVRCVINFO, &on, sizeof on, "RECVRCVINFO");
    set(fd, SCTP_NODELAY, &on, sizeof on, "NODELAY");
    if (opt.interleave) {
        set(fd, SCTP_FRAGMENT_INTERLEAVE, &on, sizeof on, "FRAGMENT_INTERLEAVE");
        set_assoc(fd, SCTP_INTERLEAVING_SUPPORTED, 1, "INTERLEAVING_SUPPORTED");
    }
    set_assoc(fd, SCTP_PR_SUPPORTED, opt.pr, "PR_SUPPORTED");
    set_assoc(fd, SCTP_ECN_SUPPORTED, opt.ecn, "ECN_SUPPORTED");
    set_assoc(fd, SCTP_RECONFIG_SUPPORTED, opt.reconf, "RECONFIG_SUPPORTED");
    if (opt.reconf) set_assoc(fd, SCTP_ENABLE_STREAM_RESET, SCTP_ENABLE_STRRESET_MASK, "ENABLE_STREAM_RESET");
    if (opt.auth || opt.asconf) configure_auth(fd);
    if (opt.asconf) set_assoc(fd, SCTP_ASCONF_SUPPORTED, 1, "ASCONF_SUPPORTED");
    if (opt.scheduler >= 0) set_assoc(fd, SCTP_STREAM_SCHEDULER, opt.scheduler, "STREAM_SCHEDULER");
    if (opt.fragment > 0) set_assoc(fd, SCTP_MAXSEG, opt.fragment, "MAXSEG");
    if (opt.rto > 0) {
        struct sctp_rtoinfo rto = {.srto_initial = opt.rto * 3, .srto_min = opt.rto, .srto_max = opt.rto * 20};
        struct sctp_assocparams patient = {.sasoc_asocmaxrxt = 40};
        struct sctp_paddrparams path = {.spp_pathmaxrxt = 20};
        set(fd, SCTP_RTOINFO, &rto, sizeof rto, "RTOINFO");
        set(fd, SCTP_ASSOCINFO, &patient, sizeof patient, "ASSOCINFO");
        set(fd, SCTP_PEER_ADDR_PARAMS, &path, sizeof path, "PEER_ADDR_PARAMS");
    }
    if (opt.adaptation != 0) {
        struct sctp_setadaptation a = {.ssb_adaptation_ind = opt.adaptation};
        set(fd, SCTP_ADAPTATION_LAYER, &a, sizeof a, "ADAPTATION_LAYER");
    }
    struct sctp_initmsg init = {.sinit_num_ostreams = opt.out, .sinit_max_instreams = opt.in};
    set(fd, SCTP_INITMSG, &init, sizeof init, "INITMSG");
    if (opt.udp != 0) {
        struct sctp_udpencaps encaps = {.sue_port = htons(opt.udp)};
        encaps.sue_address.ss_family = AF_INET;
        set(fd, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps, "REMOTE_UDP_ENCAPS_PORT");
    }
    static const uint16_t events[] = {SCTP_ASSOC_CHANGE,        SCTP_PEER_ADDR_CHANGE,       SCTP_REMOTE_ERROR,
                                      SCTP_SHUTDOWN_EVENT,      SCTP_SEND_FAILED_EVENT,      SCTP_STREAM_RESET_EVENT,
                                      SCTP_STREAM_CHANGE_EVENT, SCTP_ADAPTATION_INDICATION,  SCTP_SENDER_DRY_EVENT,
                                      SCTP_AUTHENTICATION_EVENT, SCTP_PARTIAL_DELIVERY_EVENT};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct sctp_event event = {.se_assoc_id = SCTP_FUTURE_ASSOC, .se_type = events[i], .se_on = 1};
        set(fd, SCTP_EVENT, &event, sizeof event, "EVENT");
    }
}

static void notified(const union sctp_notification *n) {
    char address[INET6_ADDRSTRLEN];
    switch (n->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE: {
        static const char *const states[] = {"connected", "lost", "restart", "closed", "refused"};
        unsigned state = n->sn_assoc_change.sac_state;
        if (state == SCTP_COMM_UP) association = n->sn_assoc_change.sac_assoc_id;
        say("{\"event\":\"%s\",\"out\":%u,\"in\":%u,\"error\":%u}", state < 5 ? states[state] : "?",
            n->sn_assoc_change.sac_outbound_streams, n->sn_assoc_change.sac_inbound_streams, ntohs(n->sn_assoc_change.sac_error));
        break;
    }
    case SCTP_PEER_ADDR_CHANGE: {
        static const char *const states[] = {"available", "unreachable", "removed", "added", "primary", "confirmed", "doubted"};
        struct sockaddr_storage a = n->sn_paddr_change.spc_aaddr;
        unsigned state = (unsigned)n->sn_paddr_change.spc_state;
        show(&a, address, sizeof address);
        say("{\"event\":\"path\",\"address\":\"%s\",\"state\":\"%s\"}", address, state < 7 ? states[state] : "?");
        break;
    }
    case SCTP_REMOTE_ERROR: say("{\"event\":\"remote-error\",\"cause\":%u}", ntohs(n->sn_remote_error.sre_error)); break;
    case SCTP_SHUTDOWN_EVENT: say("{\"event\":\"shutdown\"}"); break;
    case SCTP_SENDER_DRY_EVENT: say("{\"event\":\"dry\"}"); break;
    case SCTP_PARTIAL_DELIVERY_EVENT: say("{\"event\":\"part-lost\"}"); break;
    case SCTP_AUTHENTICATION_EVENT:
        say("{\"event\":\"auth\",\"key\":%u,\"indication\":%u}", n->sn_authkey_event.auth_keynumber,
            n->sn_authkey_event.auth_indication);
        break;
    case SCTP_ADAPTATION_INDICATION:
        say("{\"event\":\"adaptation\",\"code\":%u}", n->sn_adaptation_event.sai_adaptation_ind);
        break;
    case SCTP_SEND_FAILED_EVENT:
        say("{\"event\":\"send-failed\",\"ppid\":%u,\"flags\":%u}", ntohl(n->sn_send_failed_event.ssfe_info.snd_ppid),
            n->sn_send_failed_event.ssf_flags);
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

static void *receive(void *unused) {
    (void)unused;
    unsigned char *buffer = malloc(MESSAGE_MAX);
    if (buffer == NULL) die("malloc");
    for (;;) {
        union {
            char bytes[CMSG_SPACE(sizeof(struct sctp_rcvinfo)) + 256];
            struct cmsghdr aligned;
        } control;
        struct iovec data = {.iov_base = buffer, .iov_len = MESSAGE_MAX};
        struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(so, &m, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == ENOTCONN && !opt.one) {
            // There is no association yet, or any more: the next one may come.
            usleep(1000);
            continue;
        }
        if (n <= 0) {
            // On a socket for many, an error belongs to the last association.
            say("{\"event\":\"eof\",\"error\":\"%s\"}", n < 0 ? strerror(errno) : "");
            // One of this style is told no other way.
            if (opt.one && n == 0) say("{\"event\":\"closed\"}");
            if (!opt.one && n < 0 && errno != EBADF) continue;
            free(buffer);
            return NULL;
        }
        if (m.msg_flags & MSG_NOTIFICATION) {
            notified((union sctp_notification *)buffer);
            continue;
        }
        struct sctp_rcvinfo info = {0};
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
            if (c->cmsg_level == IPPROTO_SCTP && c->cmsg_type == SCTP_RCVINFO) memcpy(&info, CMSG_DATA(c), sizeof info);
        }
        received(buffer, (size_t)n, (m.msg_flags & MSG_EOR) != 0, (info.rcv_flags & SCTP_UNORDERED) != 0, info.rcv_sid,
                 info.rcv_ssn, ntohl(info.rcv_ppid));
    }
}

// Sends a message, or with `flags` alone what they mean. -1 and errno if not.
static ssize_t give(const void *bytes, size_t len, uint16_t stream, uint16_t flags, uint32_t number, const struct sctp_prinfo *pr) {
    union {
        char bytes[CMSG_SPACE(sizeof(struct sctp_sndinfo)) + CMSG_SPACE(sizeof(struct sctp_prinfo))];
        struct cmsghdr aligned;
    } control;
    memset(&control, 0, sizeof control);
    struct iovec data = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = len > 0, .msg_control = &control, .msg_controllen = sizeof control};
    struct sctp_sndinfo info = {
        .snd_sid = stream, .snd_flags = flags, .snd_ppid = htonl(number), .snd_assoc_id = opt.one ? 0 : association};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_SCTP, c->cmsg_type = SCTP_SNDINFO, c->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    if (pr != NULL) {
        c = CMSG_NXTHDR(&m, c);
        c->cmsg_level = IPPROTO_SCTP, c->cmsg_type = SCTP_PRINFO, c->cmsg_len = CMSG_LEN(sizeof *pr);
        memcpy(CMSG_DATA(c), pr, sizeof *pr);
    } else {
        m.msg_controllen = CMSG_SPACE(sizeof info);
    }
    return sendmsg(so, &m, MSG_NOSIGNAL);
}

static uint32_t next_number = 1;

static void send_messages(const char *line) {
    struct batch batch;
    if (!read_batch(line, &batch)) return;
    unsigned char *bytes = malloc(batch.to);
    if (bytes == NULL) die("malloc");
    struct sctp_prinfo pr = {.pr_value = batch.value};
    if (strcmp(batch.policy, "ttl") == 0) pr.pr_policy = SCTP_PR_SCTP_TTL;
    if (strcmp(batch.policy, "rtx") == 0) pr.pr_policy = SCTP_PR_SCTP_RTX;
    if (strcmp(batch.policy, "prio") == 0) pr.pr_policy = SCTP_PR_SCTP_PRIO;
    for (unsigned i = 0; i < batch.count; i++, next_number++) {
        size_t len = batch_len(&batch, next_number);
        fill(bytes, next_number, len);
        ssize_t sent = give(bytes, len, (uint16_t)(next_number % batch.streams), batch.unordered ? SCTP_UNORDERED : 0, next_number,
                            pr.pr_policy != 0 ? &pr : NULL);
        if (sent != (ssize_t)len) {
            say("{\"event\":\"failed\",\"what\":\"send\",\"ppid\":%u,\"why\":\"%s\"}", next_number, strerror(errno));
            break;
        }
    }
    free(bytes);
    say("{\"event\":\"sent\",\"next\":%u}", next_number);
}

static void asked(const char *what, int result) {
    say("{\"event\":\"%s-asked\",\"why\":\"%s\"}", what, result == 0 ? "" : strerror(errno));
}

static void reset(char *line) {
    char *rest, *direction = strtok_r(line, " \n", &rest), *number;
    uint16_t streams[1024];
    size_t count = 0;
    while ((number = strtok_r(NULL, " \n", &rest)) != NULL && count < 1024) streams[count++] = (uint16_t)atoi(number);
    size_t len = sizeof(struct sctp_reset_streams) + count * sizeof *streams;
    struct sctp_reset_streams *request = calloc(1, len);
    if (request == NULL || direction == NULL) die("reset");
    int in = strcmp(direction, "out") != 0, out = strcmp(direction, "in") != 0;
    request->srs_assoc_id = association;
    request->srs_flags = (uint16_t)((in ? SCTP_STREAM_RESET_INCOMING : 0) | (out ? SCTP_STREAM_RESET_OUTGOING : 0));
    request->srs_number_streams = (uint16_t)count;
    memcpy(request->srs_stream_list, streams, count * sizeof *streams);
    asked("reset", setsockopt(so, IPPROTO_SCTP, SCTP_RESET_STREAMS, request, (socklen_t)len));
    free(request);
}

static void change_address(char *line) {
    char *rest, *verb = strtok_r(line, " \n", &rest), *text = strtok_r(NULL, " \n", &rest);
    struct sockaddr_storage a;
    if (verb == NULL || text == NULL || !read_address(text, opt.port, &a)) die("address");
    int result;
    if (strcmp(verb, "prefer") == 0) {
        struct sctp_setpeerprim wish = {.sspp_assoc_id = association, .sspp_addr = a};
        result = setsockopt(so, IPPROTO_SCTP, SCTP_SET_PEER_PRIMARY_ADDR, &wish, sizeof wish);
    } else {
        int option = strcmp(verb, "add") == 0 ? SCTP_SOCKOPT_BINDX_ADD : SCTP_SOCKOPT_BINDX_REM;
        result = setsockopt(so, IPPROTO_SCTP, option, &a, sized(&a));
    }
    asked("address", result);
}

static unsigned feature(int option) {
    struct sctp_assoc_value v = {.assoc_id = association};
    socklen_t len = sizeof v;
    return getsockopt(so, IPPROTO_SCTP, option, &v, &len) == 0 ? v.assoc_value : 0;
}

static unsigned long counter(const char *name) {
    char line[128], word[64];
    unsigned long value = 0, found = 0;
    FILE *f = fopen("/proc/net/sctp/snmp", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%63s %lu", word, &value) == 2 && strcmp(word, name) == 0) found = value;
    }
    if (f != NULL) fclose(f);
    return found;
}

static void status(void) {
    struct sctp_status s = {.sstat_assoc_id = association};
    socklen_t len = sizeof s;
    if (getsockopt(so, IPPROTO_SCTP, SCTP_STATUS, &s, &len) != 0) {
        say("{\"event\":\"status\",\"why\":\"%s\"}", strerror(errno));
        return;
    }
    struct sctp_assoc_stats stats = {.sas_assoc_id = association};
    len = sizeof stats;
    if (getsockopt(so, IPPROTO_SCTP, SCTP_GET_ASSOC_STATS, &stats, &len) != 0) die("GET_ASSOC_STATS");
    char primary[INET6_ADDRSTRLEN];
    struct sockaddr_storage a = s.sstat_primary.spinfo_address;
    show(&a, primary, sizeof primary);
    say("{\"event\":\"status\",\"state\":%d,\"rwnd\":%u,\"unacked\":%u,\"pending\":%u,\"in\":%u,\"out\":%u,\"fragmentation\":%u,"
        "\"primary\":\"%s\",\"interleaving\":%u,\"partial\":%u,\"reconfiguration\":%u,\"authentication\":%u,\"addresses\":%u,"
        "\"ecn\":%u,\"retransmitted\":%llu,\"duplicates\":%llu,\"packets_in\":%llu,\"packets_out\":%llu,\"checksum_errors\":%lu}",
        s.sstat_state, s.sstat_rwnd, s.sstat_unackdata, s.sstat_penddata, s.sstat_instrms, s.sstat_outstrms,
        s.sstat_fragmentation_point, primary, feature(SCTP_INTERLEAVING_SUPPORTED), feature(SCTP_PR_SUPPORTED),
        feature(SCTP_RECONFIG_SUPPORTED), feature(SCTP_AUTH_SUPPORTED), feature(SCTP_ASCONF_SUPPORTED), feature(SCTP_ECN_SUPPORTED),
        (unsigned long long)stats.sas_rtxchunks, (unsigned long long)stats.sas_idupchunks, (unsigned long long)stats.sas_ipackets,
        (unsigned long long)stats.sas_opackets, counter("SctpChecksumErrors"));
}

static void heartbeats(const char *rest, int now) {
    struct sctp_paddrparams p = {.spp_assoc_id = association, .spp_flags = SPP_HB_ENABLE};
    if (now) {
        // One, at once, to the primary path.
        struct sctp_status s = {.sstat_assoc_id = association};
        socklen_t len = sizeof s;
        if (getsockopt(so, IPPROTO_SCTP, SCTP_STATUS, &s, &len) != 0) die("STATUS");
        p.spp_address = s.sstat_primary.spinfo_address;
        p.spp_flags = SPP_HB_DEMAND;
    } else {
        p.spp_hbinterval = (uint32_t)atoi(rest);
    }
    asked("heartbeat", setsockopt(so, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p));
}

static void keys(const char *rest, int use) {
    unsigned number = 0;
    char secret[64] = "";
    sscanf(rest, "%u %63s", &number, secret);
    if (use) {
        struct sctp_authkeyid id = {.scact_assoc_id = association, .scact_keynumber = (uint16_t)number};
        asked("key", setsockopt(so, IPPROTO_SCTP, SCTP_AUTH_ACTIVE_KEY, &id, sizeof id));
    } else {
        set_key(so, association, (uint16_t)number, secret);
        asked("key", 0);
    }
}

static void obey(void) {
    char line[8192];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *place, *word = strtok_r(line, " \n", &place), *rest = strtok_r(NULL, "\n", &place);
        if (word == NULL) continue;
        if (rest == NULL) rest = "";
        if (strcmp(word, "send") == 0) {
            send_messages(rest);
        } else if (strcmp(word, "reset") == 0) {
            reset(rest);
        } else if (strcmp(word, "add") == 0) {
            unsigned out = 0, in = 0;
            sscanf(rest, "%u %u", &out, &in);
            struct sctp_add_streams add = {
                .sas_assoc_id = association, .sas_outstrms = (uint16_t)out, .sas_instrms = (uint16_t)in};
            asked("add", setsockopt(so, IPPROTO_SCTP, SCTP_ADD_STREAMS, &add, sizeof add));
        } else if (strcmp(word, "heartbeats") == 0 || strcmp(word, "heartbeat") == 0) {
            heartbeats(rest, strcmp(word, "heartbeat") == 0);
        } else if (strcmp(word, "weight") == 0) {
            unsigned stream = 0, value = 0;
            sscanf(rest, "%u %u", &stream, &value);
            struct sctp_stream_value v = {
                .assoc_id = association, .stream_id = (uint16_t)stream, .stream_value = (uint16_t)value};
            asked("weight", setsockopt(so, IPPROTO_SCTP, SCTP_STREAM_SCHEDULER_VALUE, &v, sizeof v));
        } else if (strcmp(word, "address") == 0) {
            change_address(rest);
        } else if (strcmp(word, "primary") == 0) {
            struct sctp_prim wish = {.ssp_assoc_id = association};
            struct sockaddr_storage a;
            if (!read_address(rest, opt.remote_port, &a)) die("primary");
            wish.ssp_addr = a;
            asked("primary", setsockopt(so, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &wish, sizeof wish));
        } else if (strcmp(word, "key") == 0 || strcmp(word, "use-key") == 0) {
            keys(rest, strcmp(word, "use-key") == 0);
        } else if (strcmp(word, "shutdown") == 0) {
            int result = opt.one ? shutdown(so, SHUT_WR) : (int)give("", 0, 0, SCTP_EOF, 0, NULL);
            if (result != 0) say("{\"event\":\"failed\",\"what\":\"shutdown\",\"why\":\"%s\"}", strerror(errno));
        } else if (strcmp(word, "abort") == 0) {
            if (give("enough", 6, 0, SCTP_ABORT, 0, NULL) < 0) {
                say("{\"event\":\"failed\",\"what\":\"abort\",\"why\":\"%s\"}", strerror(errno));
            }
            say("{\"event\":\"aborted\"}");
        } else if (strcmp(word, "status") == 0) {
            status();
        } else if (strcmp(word, "end") == 0) {
            return;
        } else {
            say("{\"event\":\"failed\",\"what\":\"%s\",\"why\":\"no such command\"}", word);
        }
    }
}

static int read_number(const char *name, const char *value) {
    const struct {
        const char *name;
        uint16_t *small;
        int *number;
    } all[] = {
        {"--port", &opt.port, NULL},         {"--remote-port", &opt.remote_port, NULL}, {"--udp", &opt.udp, NULL},
        {"--scheduler", NULL, &opt.scheduler}, {"--auth-chunk", NULL, &opt.auth_chunk}, {"--hmac", NULL, &opt.hmac},
        {"--rto", NULL, &opt.rto},           {"--buffer", NULL, &opt.buffer},           {"--fragment", NULL, &opt.fragment},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0) continue;
        if (all[i].small != NULL) *all[i].small = (uint16_t)atoi(value);
        if (all[i].number != NULL) *all[i].number = atoi(value);
        return 1;
    }
    return 0;
}

static void read_options(int argc, char **argv) {
    if (argc < 1 || (strcmp(argv[0], "listen") != 0 && strcmp(argv[0], "connect") != 0)) die("listen or connect");
    opt.listen = strcmp(argv[0], "listen") == 0;
    opt.out = 16, opt.in = 2048, opt.pr = opt.reconf = opt.ecn = 1;
    opt.scheduler = opt.auth_chunk = -1, opt.buffer = 8 << 20;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--one-to-one") == 0) opt.one = 1;
        else if (strcmp(name, "--interleave") == 0) opt.interleave = 1;
        else if (strcmp(name, "--no-pr") == 0) opt.pr = 0;
        else if (strcmp(name, "--no-ecn") == 0) opt.ecn = 0;
        else if (strcmp(name, "--no-reconf") == 0) opt.reconf = 0;
        else if (strcmp(name, "--auth") == 0) opt.auth = 1;
        else if (strcmp(name, "--asconf") == 0) opt.asconf = 1;
        else if (i++, read_number(name, value)) continue;
        else if (strcmp(name, "--local") == 0) read_addresses(value, &opt.local);
        else if (strcmp(name, "--remote") == 0) read_addresses(value, &opt.remote);
        else if (strcmp(name, "--streams") == 0) sscanf(value, "%hu,%hu", &opt.out, &opt.in);
        else if (strcmp(name, "--adaptation") == 0) opt.adaptation = (unsigned)strtoul(value, NULL, 0);
        else if (strcmp(name, "--key") == 0) snprintf(opt.key, sizeof opt.key, "%s", value);
        else {
            errno = EINVAL;
            die(name);
        }
    }
}

static void bind_all(int fd) {
    unsigned char list[ADDRESSES_MAX * sizeof(struct sockaddr_storage)];
    if (opt.local.count == 0) {
        struct sockaddr_storage any;
        read_address(opt.v6 ? "::" : "0.0.0.0", opt.port, &any);
        if (bind(fd, (struct sockaddr *)&any, sized(&any)) != 0) die("bind");
        return;
    }
    if (setsockopt(fd, IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD, list, packed(&opt.local, opt.port, list)) != 0) die("bindx");
}

int peer(int argc, char **argv) {
    read_options(argc, argv);
    if (opt.remote_port == 0) opt.remote_port = opt.port;
    int family = opt.v6 ? AF_INET6 : AF_INET;
    so = socket(family, opt.one ? SOCK_STREAM : SOCK_SEQPACKET, IPPROTO_SCTP);
    if (so < 0) die("socket");
    configure(so);
    bind_all(so);
    pthread_t receiver;
    if (opt.listen) {
        if (listen(so, 1) != 0) die("listen");
        say("{\"event\":\"ready\"}");
        if (opt.one) {
            int accepted = accept(so, NULL, NULL);
            if (accepted < 0) die("accept");
            close(so);
            so = accepted;
            say("{\"event\":\"connected\"}");
        }
        if (pthread_create(&receiver, NULL, receive, NULL) != 0) die("thread");
    } else {
        unsigned char list[ADDRESSES_MAX * sizeof(struct sockaddr_storage)];
        say("{\"event\":\"ready\"}");
        socklen_t len = packed(&opt.remote, opt.remote_port, list);
        if (opt.one) {
            if (setsockopt(so, IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX, list, len) < 0) die("connectx");
            say("{\"event\":\"connected\"}");
            if (pthread_create(&receiver, NULL, receive, NULL) != 0) die("thread");
        } else {
            // What happens meanwhile is heard by the other thread.
            if (pthread_create(&receiver, NULL, receive, NULL) != 0) die("thread");
            if (setsockopt(so, IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX, list, len) < 0) {
                say("{\"event\":\"connect-asked\",\"why\":\"%s\"}", strerror(errno));
            }
        }
    }
    obey();
    close(so);
    say("{\"event\":\"ended\"}");
    return 0;
}
