/*
 * neat.h: the C interface of NEAT 1.0.9, provided by neater.
 *
 * Written from a description of NEAT's behaviour. Programs written for NEAT compile against it unchanged:
 *
 *     cc program.c $(pkg-config --cflags --libs libneat)
 *
 * docs/libneat.md describes every function and lists what differs from NEAT on purpose.
 *
 * A context and everything that belongs to it is used by one thread. Unless a function says otherwise, it returns NEAT_ERROR_OK
 * or one of the NEAT_ERROR_ codes; NEAT_ERROR_BAD_ARGUMENT where a pointer is NULL, or a flow belongs to another context.
 */
#ifndef NEAT_INCLUDED_NEAT_H
#define NEAT_INCLUDED_NEAT_H

/* uv.h needs POSIX, which a compiler in a strict mode (-std=c99) hides unless it is asked for before the first header. */
#if defined(__STRICT_ANSI__) && !defined(__cplusplus) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) && \
    !defined(_POSIX_C_SOURCE) && !defined(_XOPEN_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <sys/types.h>
#include <netinet/in.h>
#include <uv.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define NEAT_EXTERN __attribute__((visibility("default")))
#else
#define NEAT_EXTERN
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr;
struct neat_ctx;
struct neat_flow;
struct neat_flow_operations;

typedef uint64_t neat_error_code;

/* The same values as uv_run_mode. */
typedef enum {
    NEAT_RUN_DEFAULT = 0,
    NEAT_RUN_ONCE = 1,
    NEAT_RUN_NOWAIT = 2
} neat_run_mode;

/* Errors. */
#define NEAT_ERROR_OK 0
#define NEAT_OK NEAT_ERROR_OK
#define NEAT_ERROR_WOULD_BLOCK 1
#define NEAT_ERROR_BAD_ARGUMENT 2
#define NEAT_ERROR_IO 3
#define NEAT_ERROR_DNS 4
#define NEAT_ERROR_INTERNAL 5
#define NEAT_ERROR_SECURITY 6
#define NEAT_ERROR_UNABLE 7
#define NEAT_ERROR_MESSAGE_TOO_BIG 8
#define NEAT_ERROR_REMOTE 9
#define NEAT_ERROR_OUT_OF_MEMORY 10

/* Log levels. */
#define NEAT_LOG_OFF 0
#define NEAT_LOG_ERROR 1
#define NEAT_LOG_WARNING 2
#define NEAT_LOG_INFO 3
#define NEAT_LOG_DEBUG 4

/* Kinds of PEM files, for neat_secure_identity. */
#define NEAT_CERT_NONE 0
#define NEAT_CERT_PEM 1
#define NEAT_KEY_PEM 2
#define NEAT_CERT_KEY_PEM 3

#define NEAT_INVALID_STREAM (-1)

/* Which transport carries a flow. */
typedef enum {
    NEAT_STACK_UDP = 1,
    NEAT_STACK_UDPLITE,
    NEAT_STACK_TCP,
    NEAT_STACK_MPTCP,
    NEAT_STACK_SCTP,
    NEAT_STACK_SCTP_UDP,
    NEAT_STACK_WEBRTC
} neat_protocol_stack_type;

/* Optional arguments. */
enum neat_tlv_type {
    NEAT_TYPE_INTEGER = 0,
    NEAT_TYPE_FLOAT,
    NEAT_TYPE_STRING
};
typedef enum neat_tlv_type neat_tlv_type;

enum neat_tlv_tag {
    NEAT_TAG_STREAM_ID = 0,
    NEAT_TAG_STREAM_COUNT,
    NEAT_TAG_LOCAL_NAME,
    NEAT_TAG_LOCAL_ADDRESS,
    NEAT_TAG_SERVICE_NAME,
    NEAT_TAG_CONTEXT,
    NEAT_TAG_PARTIAL_RELIABILITY_METHOD,
    NEAT_TAG_PARTIAL_RELIABILITY_VALUE,
    NEAT_TAG_PARTIAL_MESSAGE_RECEIVED,
    NEAT_TAG_PARTIAL_SEQNUM,
    NEAT_TAG_UNORDERED,
    NEAT_TAG_UNORDERED_SEQNUM,
    NEAT_TAG_DESTINATION_IP_ADDRESS,
    NEAT_TAG_PRIORITY,
    NEAT_TAG_FLOW_GROUP,
    NEAT_TAG_CC_ALGORITHM,
    NEAT_TAG_TRANSPORT_STACK,
    NEAT_TAG_CHANNEL_NAME,
    NEAT_TAG_LAST
};
typedef enum neat_tlv_tag neat_tlv_tag;

struct neat_tlv {
    neat_tlv_tag tag;
    neat_tlv_type type;
    union {
        int integer;
        char *string;
        float real;
    } value;
};

#define NEAT_OPTARGS_MAX (NEAT_TAG_LAST)
#define NEAT_OPTARGS (__optional_arguments)
#define NEAT_OPTARGS_COUNT (__optional_argument_count)

#if defined(__GNUC__) || defined(__clang__)
#define NEAT_UNUSED_ __attribute__((unused))
#else
#define NEAT_UNUSED_
#endif

/* The macros end in a semicolon of their own, as NEAT's do. */
#ifdef assert
#define NEAT_OPTARGS_DECLARE(max)                                                \
    struct neat_tlv __optargs_buffer[max];                                       \
    struct neat_tlv *const __optional_arguments NEAT_UNUSED_ = __optargs_buffer; \
    const unsigned int __optional_arguments_limit NEAT_UNUSED_ = (max);          \
    unsigned int __optional_argument_count NEAT_UNUSED_;
#define NEAT_OPTARGS_CHECK_ assert(__optional_argument_count < __optional_arguments_limit);
#else
#define NEAT_OPTARGS_DECLARE(max)                                                \
    struct neat_tlv __optargs_buffer[max];                                       \
    struct neat_tlv *const __optional_arguments NEAT_UNUSED_ = __optargs_buffer; \
    unsigned int __optional_argument_count NEAT_UNUSED_;
#define NEAT_OPTARGS_CHECK_
#endif

#define NEAT_OPTARGS_INIT()             \
    do {                                \
        __optional_argument_count = 0;  \
    } while (0);
#define NEAT_OPTARGS_RESET() NEAT_OPTARGS_INIT()

#define NEAT_OPTARG_STORE_(tagname, typename_, member, val)                       \
    do {                                                                          \
        NEAT_OPTARGS_CHECK_                                                       \
        __optional_arguments[__optional_argument_count].value.member = (val);     \
        __optional_arguments[__optional_argument_count].type = (typename_);       \
        __optional_arguments[__optional_argument_count].tag = (tagname);          \
        __optional_argument_count++;                                              \
    } while (0);
#define NEAT_OPTARG_INT(tagname, val) NEAT_OPTARG_STORE_(tagname, NEAT_TYPE_INTEGER, integer, val)
#define NEAT_OPTARG_FLOAT(tagname, val) NEAT_OPTARG_STORE_(tagname, NEAT_TYPE_FLOAT, real, val)
#define NEAT_OPTARG_STRING(tagname, val) NEAT_OPTARG_STORE_(tagname, NEAT_TYPE_STRING, string, (char *)(val))

/* Callbacks. What they return is ignored. */
typedef neat_error_code (*neat_flow_operations_fx)(struct neat_flow_operations *);
typedef void (*neat_cb_send_failure_t)(struct neat_flow_operations *, int context, const unsigned char *unsent);
typedef void (*neat_cb_flow_slowdown_t)(struct neat_flow_operations *, int ecn, uint32_t rate);
typedef void (*neat_cb_flow_rate_hint_t)(struct neat_flow_operations *, uint32_t new_rate);

/*
 * The callbacks of a flow, and what they are called with. The argument of a callback is the flow's own copy: edits to it persist.
 * The five ids are the program's; the library copies them to accepted flows.
 */
struct neat_flow_operations {
    uint32_t preconnection_id;
    uint32_t rendezvous_id;
    uint32_t connection_id;
    uint32_t parent_id;
    uint32_t clone_id;

    void *userData;

    neat_error_code status;
    uint16_t stream_id;
    int transport_protocol;

    neat_flow_operations_fx on_connected;
    neat_flow_operations_fx on_error;
    neat_flow_operations_fx on_readable;
    neat_flow_operations_fx on_writable;
    neat_flow_operations_fx on_all_written;
    neat_flow_operations_fx on_network_status_changed;
    neat_flow_operations_fx on_aborted;
    neat_flow_operations_fx on_timeout;
    neat_flow_operations_fx on_close;
    neat_flow_operations_fx on_parameters;

    neat_cb_send_failure_t on_send_failure;
    neat_cb_flow_slowdown_t on_slowdown;
    neat_cb_flow_rate_hint_t on_rate_hint;

    char *label;
    struct neat_ctx *ctx;
    struct neat_flow *flow;
};

/* Contexts and their event loop. */
NEAT_EXTERN struct neat_ctx *neat_init_ctx(void);
NEAT_EXTERN neat_error_code neat_start_event_loop(struct neat_ctx *ctx, neat_run_mode run_mode);
NEAT_EXTERN void neat_stop_event_loop(struct neat_ctx *ctx);
NEAT_EXTERN int neat_get_backend_fd(struct neat_ctx *ctx);
NEAT_EXTERN int neat_get_backend_timeout(struct neat_ctx *ctx);
NEAT_EXTERN uv_loop_t *neat_get_event_loop(struct neat_ctx *ctx);
NEAT_EXTERN void neat_free_ctx(struct neat_ctx *ctx);
NEAT_EXTERN void neat_log_level(struct neat_ctx *ctx, uint8_t level);
NEAT_EXTERN uint8_t neat_log_file(struct neat_ctx *ctx, const char *file_name);
NEAT_EXTERN neat_error_code neat_get_stats(struct neat_ctx *ctx, char **stats);

/* Flows. */
NEAT_EXTERN struct neat_flow *neat_new_flow(struct neat_ctx *ctx);
NEAT_EXTERN neat_error_code neat_set_operations(struct neat_ctx *ctx, struct neat_flow *flow,
                                                struct neat_flow_operations *ops);
NEAT_EXTERN neat_error_code neat_set_property(struct neat_ctx *ctx, struct neat_flow *flow, const char *properties);
NEAT_EXTERN neat_error_code neat_get_property(struct neat_ctx *ctx, struct neat_flow *flow, const char *name, void *ptr,
                                              size_t *size);
NEAT_EXTERN neat_error_code neat_open(struct neat_ctx *ctx, struct neat_flow *flow, const char *name, uint16_t port,
                                      struct neat_tlv optional[], unsigned int opt_count);
NEAT_EXTERN neat_error_code neat_accept(struct neat_ctx *ctx, struct neat_flow *flow, uint16_t port,
                                        struct neat_tlv optional[], unsigned int opt_count);
NEAT_EXTERN neat_error_code neat_read(struct neat_ctx *ctx, struct neat_flow *flow, unsigned char *buffer, uint32_t amt,
                                      uint32_t *actualAmt, struct neat_tlv optional[], unsigned int opt_count);
NEAT_EXTERN neat_error_code neat_write(struct neat_ctx *ctx, struct neat_flow *flow, const unsigned char *buffer,
                                       uint32_t amt, struct neat_tlv optional[], unsigned int opt_count);
NEAT_EXTERN neat_error_code neat_shutdown(struct neat_ctx *ctx, struct neat_flow *flow);
NEAT_EXTERN neat_error_code neat_close(struct neat_ctx *ctx, struct neat_flow *flow);
NEAT_EXTERN neat_error_code neat_abort(struct neat_ctx *ctx, struct neat_flow *flow);

/* What carries a flow, and how. */
NEAT_EXTERN int neat_getlpaddrs(struct neat_ctx *ctx, struct neat_flow *flow, struct sockaddr **addrs, const int local);
NEAT_EXTERN void neat_freelpaddrs(struct sockaddr *addrs);
NEAT_EXTERN neat_error_code neat_change_timeout(struct neat_ctx *ctx, struct neat_flow *flow, unsigned int seconds);
NEAT_EXTERN neat_error_code neat_set_primary_dest(struct neat_ctx *ctx, struct neat_flow *flow, const char *name);
NEAT_EXTERN neat_error_code neat_set_checksum_coverage(struct neat_ctx *ctx, struct neat_flow *flow,
                                                       unsigned int send_coverage, unsigned int receive_coverage);
NEAT_EXTERN neat_error_code neat_secure_identity(struct neat_ctx *ctx, struct neat_flow *flow, const char *filename,
                                                 int pemType);
NEAT_EXTERN neat_error_code neat_set_qos(struct neat_ctx *ctx, struct neat_flow *flow, uint8_t qos);
NEAT_EXTERN int neat_get_qos(struct neat_ctx *ctx, struct neat_flow *flow);
NEAT_EXTERN neat_error_code neat_set_ecn(struct neat_ctx *ctx, struct neat_flow *flow, uint8_t ecn);
NEAT_EXTERN neat_error_code neat_set_low_watermark(struct neat_ctx *ctx, struct neat_flow *flow, uint32_t watermark);
NEAT_EXTERN int neat_get_socket_fd(struct neat_flow *flow);
NEAT_EXTERN void neat_get_max_buffer_sizes(struct neat_flow *flow, int *send, int *recv);
NEAT_EXTERN neat_error_code neat_get_stack(struct neat_flow *flow, void *ptr, size_t *size);
NEAT_EXTERN void set_initiate_timer(struct neat_ctx *ctx, struct neat_flow *flow, struct neat_flow_operations *ops,
                                    float timeout);
NEAT_EXTERN void set_ops_user_data(struct neat_flow_operations *ops, unsigned char *data);
NEAT_EXTERN unsigned char *get_ops_user_data(struct neat_flow_operations *ops);
NEAT_EXTERN neat_error_code neat_send_remote_parameters(struct neat_ctx *ctx, struct neat_flow *flow, char *params);

#ifdef __cplusplus
}
#endif

#endif /* NEAT_INCLUDED_NEAT_H */
