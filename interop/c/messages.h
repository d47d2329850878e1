// What the peers of our SCTP share: what a message holds, and how they speak to the tests.

#ifndef MESSAGES_H
#define MESSAGES_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX (4u << 20)
#define STREAMS_MAX 65536

// A JSON object on a line of its own.
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    vprintf(format, arguments);
    putchar_unlocked('\n');
    fflush(stdout);
    funlockfile(stdout);
    va_end(arguments);
}

static inline void die(const char *what) {
    say("{\"event\":\"failed\",\"what\":\"%s\",\"why\":\"%s\"}", what, strerror(errno));
    exit(1);
}

// Byte `i` of message `number`: neither the same for all messages nor periodic within a packet.
static inline void fill(unsigned char *to, uint32_t number, size_t len) {
    uint32_t x = number * 2654435761u + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (unsigned char)(x >> 24);
    }
}

static inline uint64_t hash(const unsigned char *bytes, size_t len) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

// What the command `send` asks for: COUNT STREAMS SIZE[-SIZE] o|u none|ttl|rtx|prio VALUE.
struct batch {
    unsigned count, streams, from, to, value;
    int unordered;
    char policy[8];
};

// False, and said so, if it is not understood.
static inline int read_batch(const char *line, struct batch *b) {
    char size[32], order;
    int given = 0;
    if (sscanf(line, "%u %u %31s %c %7s %u", &b->count, &b->streams, size, &order, b->policy, &b->value) == 6) {
        given = sscanf(size, "%u-%u", &b->from, &b->to);
        if (given == 1) b->to = b->from;
        b->unordered = order == 'u';
    }
    if (given < 1 || b->from == 0 || b->to < b->from || b->to > MESSAGE_MAX || b->streams == 0) {
        say("{\"event\":\"failed\",\"what\":\"send\",\"why\":\"not understood\"}");
        return 0;
    }
    return 1;
}

static inline size_t batch_len(const struct batch *b, uint32_t number) {
    return b->from + (uint64_t)number * 7919 % (b->to - b->from + 1);
}

// What has come of a message that is delivered in parts, one at a time for each stream and order.
struct partial {
    unsigned char *bytes;
    size_t len;
};
static struct partial partials[2][STREAMS_MAX];

// Takes in what was received. If it is the end of a message, says so.
static inline void received(const unsigned char *bytes, size_t len, int whole, int unordered, uint16_t stream, uint16_t ssn,
                            uint32_t number) {
    struct partial *part = &partials[unordered][stream];
    if (part->len != 0 || !whole) {
        if (part->len + len > MESSAGE_MAX) die("a message too long");
        part->bytes = realloc(part->bytes, part->len + len);
        if (part->bytes == NULL) die("realloc");
        memcpy(part->bytes + part->len, bytes, len);
        part->len += len;
        if (!whole) return;
        bytes = part->bytes, len = part->len;
    }
    say("{\"event\":\"message\",\"stream\":%u,\"ppid\":%u,\"unordered\":%s,\"ssn\":%u,\"size\":%zu,\"hash\":\"%016llx\"}", stream,
        number, unordered ? "true" : "false", ssn, len, (unsigned long long)hash(bytes, len));
    part->len = 0;
}

#endif
