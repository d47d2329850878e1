/* What the examples share: errors, options and files. */
#ifndef NEAT_EXAMPLE_COMMON_H
#define NEAT_EXAMPLE_COMMON_H

#include <assert.h>
#include <errno.h>
#include <neat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void fail(const char *what)
{
    fprintf(stderr, "error: %s\n", what);
    exit(1);
}

/* A whole file as a text, which the caller frees. */
static inline char *read_file(const char *path, size_t *length)
{
    FILE *f = fopen(path, "rb");
    size_t have = 0, room = 4096;
    char *text;
    if (f == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return NULL;
    }
    text = malloc(room);
    while (text != NULL) {
        size_t n = fread(text + have, 1, room - have - 1, f);
        have += n;
        if (n == 0) {
            text[have] = 0;
            break;
        }
        if (have + 1 == room) {
            char *more = realloc(text, room *= 2);
            if (more == NULL)
                free(text);
            text = more;
        }
    }
    fclose(f);
    if (length != NULL)
        *length = have;
    return text;
}

/* Transports by a word of the command line, as properties. */
static inline const char *properties_of(const char *word)
{
    if (strcmp(word, "tcp") == 0)
        return "{\"transport\": {\"value\": \"TCP\", \"precedence\": 2}}";
    if (strcmp(word, "sctp") == 0)
        return "{\"transport\": {\"value\": \"SCTP/UDP\", \"precedence\": 2}}";
    if (strcmp(word, "udp") == 0)
        return "{\"transport\": {\"value\": \"UDP\", \"precedence\": 2}}";
    if (strcmp(word, "any") == 0)
        return "{\"transport\": {\"value\": [\"SCTP\", \"TCP\"], \"precedence\": 1}}";
    if (strcmp(word, "tls") == 0)
        return "{\"transport\": {\"value\": \"TCP\", \"precedence\": 2}, \"security\": {\"value\": true, \"precedence\": 2},"
               " \"verification\": {\"value\": false, \"precedence\": 1}}";
    if (strcmp(word, "dtls") == 0)
        return "{\"transport\": {\"value\": \"UDP\", \"precedence\": 2}, \"security\": {\"value\": true, \"precedence\": 2},"
               " \"verification\": {\"value\": false, \"precedence\": 1}}";
    if (strcmp(word, "sctp-dtls") == 0)
        return "{\"transport\": {\"value\": \"SCTP\", \"precedence\": 2}, \"security\": {\"value\": true, \"precedence\": 2},"
               " \"verification\": {\"value\": false, \"precedence\": 1}}";
    return NULL;
}

static inline struct neat_ctx *context(void)
{
    struct neat_ctx *ctx = neat_init_ctx();
    if (ctx == NULL)
        fail("no context");
    neat_log_level(ctx, getenv("NEAT_EXAMPLE_LOG") != NULL ? NEAT_LOG_DEBUG : NEAT_LOG_ERROR);
    return ctx;
}

#endif
