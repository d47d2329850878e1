/*
 * neater.h: the Transport Services API of RFC 9622 in C.
 *
 * A program states what it needs from the network, and neater chooses and tries protocols,
 * addresses, interfaces and options until the best one that really works is carrying the data.
 *
 * Written from the definitions in io/neater-c/src by cbindgen; not to be changed by hand. The
 * manual is docs/neater-h.md.
 *
 * Rules that hold for all functions:
 *
 * - Handles are opaque. A function that makes an object writes its handle into its last argument,
 *   and only when it answers NEATER_OK. Each object is given back by its `_free`, to which NULL
 *   may be given.
 * - A function that cannot do what it was asked answers with a negative `neater_status`;
 *   `neater_last_error` has the words, and for establishment every candidate. NULL and structs of
 *   a wrong size are answered with an error.
 * - A struct with a `size` is set to zero, and its `size` to its sizeof, before a function is given
 *   it. Later versions of this header may make it longer; older programs go on working.
 * - Texts are UTF-8 and end with a zero byte. Texts and bytes that a function is given are copied
 *   unless it states otherwise. A function that writes a text into a buffer cuts it where it does not
 *   fit, and returns how long all of it is: NULL and 0 ask for the length alone.
 * - Contexts, connections, listeners and groups may be used from any thread at any time, but not
 *   while they are given back. Preconnections, properties, security parameters, endpoints, message
 *   contexts, events and messages belong to one thread at a time.
 * - No function waits, except `neater_poll_event` and `neater_context_drain`, which are given a
 *   time. No function starts a thread; only `names_by_system` of a context's options has helper
 *   threads.
 * - Callbacks are called from the thread that drives, without any lock held, and may call every
 *   function.
 * - A panic inside the library stops at this border: NEATER_ERROR_PANIC.
 */

#ifndef NEATER_H
#define NEATER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * What a function answers: `NEATER_OK`, or a negative number. `neater_last_error` has the words.
 */
enum neater_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It was done.
     */
    NEATER_OK = 0,
    /**
     * An argument is NULL, not UTF-8 or makes no sense.
     */
    NEATER_ERROR_INVALID_ARGUMENT = -1,
    /**
     * The `size` of a struct is smaller than in the first version of this header, or something
     * unknown to this library is asked for in what lies behind the part that it knows.
     */
    NEATER_ERROR_SIZE = -2,
    /**
     * A bug in the library was stopped at its border. The objects concerned should be given back.
     */
    NEATER_ERROR_PANIC = -3,
    /**
     * No room now. NEATER_EVENT_WRITABLE follows; nothing was taken.
     */
    NEATER_ERROR_BLOCKED = -4,
    /**
     * There is no property, service, profile or item of this name or number.
     */
    NEATER_ERROR_NOT_FOUND = -5,
    /**
     * The property does not take this value, cannot be set, or not here.
     */
    NEATER_ERROR_INVALID_VALUE = -6,
    /**
     * Words that are not understood.
     */
    NEATER_ERROR_PARSE = -7,
    /**
     * A certificate, key or security parameter cannot be used.
     */
    NEATER_ERROR_SECURITY = -8,
    /**
     * The object is in another state: not established yet, or over.
     */
    NEATER_ERROR_STATE = -9,
    /**
     * The connection is closed.
     */
    NEATER_ERROR_CLOSED = -10,
    /**
     * The message is larger than this transport, path or engine can ever take.
     */
    NEATER_ERROR_MESSAGE_TOO_LARGE = -11,
    /**
     * A final message was sent before, or the connection is closing.
     */
    NEATER_ERROR_AFTER_FINAL = -12,
    /**
     * The lifetime of the message (`msgLifetime`) has ended.
     */
    NEATER_ERROR_EXPIRED = -13,
    /**
     * The connection, or this library, cannot do it.
     */
    NEATER_ERROR_UNSUPPORTED = -14,
    /**
     * The operating system refuses: no descriptor or memory is left, or a file cannot be read.
     */
    NEATER_ERROR_SYSTEM = -15,
    /**
     * The function was called from within an event callback of the same context, where it cannot
     * be.
     */
    NEATER_ERROR_REENTRANT = -16,
    /**
     * The context is gone.
     */
    NEATER_ERROR_NO_CONTEXT = -17,
    /**
     * Endpoints, properties or security make no sense together (RFC 9623 appendix B).
     */
    NEATER_ERROR_INVALID_CONFIGURATION = -20,
    /**
     * No protocol can do what was asked.
     */
    NEATER_ERROR_NO_CANDIDATES = -21,
    /**
     * No address was found.
     */
    NEATER_ERROR_RESOLUTION_FAILED = -22,
    /**
     * Every candidate failed.
     */
    NEATER_ERROR_ESTABLISHMENT_FAILED = -23,
    /**
     * The time given for establishment has ended.
     */
    NEATER_ERROR_ESTABLISHMENT_TIMEOUT = -24,
    /**
     * Policy forbids it.
     */
    NEATER_ERROR_PROHIBITED = -25,
    /**
     * The program closed the connection before it was established.
     */
    NEATER_ERROR_CANCELLED = -26,
    /**
     * No descriptors, memory or ports are left, or a limit is reached.
     */
    NEATER_ERROR_EXHAUSTED = -27,
    /**
     * The connection has failed: the network or the system.
     */
    NEATER_ERROR_NETWORK = -30,
    /**
     * The connection has failed: TLS.
     */
    NEATER_ERROR_TLS = -31,
    /**
     * The connection has failed: QUIC.
     */
    NEATER_ERROR_QUIC = -32,
    /**
     * The connection has failed: SCTP.
     */
    NEATER_ERROR_SCTP = -33,
    /**
     * The byte stream ended without TLS's close_notify: what was received may have been cut short.
     */
    NEATER_ERROR_TRUNCATED = -34,
    /**
     * The peer has abandoned the stream; `neater_error_application_code` has its code.
     */
    NEATER_ERROR_STREAM_RESET = -35,
    /**
     * The framer has given up.
     */
    NEATER_ERROR_FRAMER = -36,
    /**
     * Aborted from this side.
     */
    NEATER_ERROR_ABORTED = -37,
    /**
     * Nothing came for longer than the time allowed.
     */
    NEATER_ERROR_TIMED_OUT = -38,
    /**
     * The peer has reset or refused the connection.
     */
    NEATER_ERROR_RESET = -39,
    /**
     * A reason that this version of the header has no number for; the words have it.
     */
    NEATER_ERROR_OTHER = -99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_status neater_status;
#else
typedef int32_t neater_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A preference (RFC 9622 section 4.2).
 */
enum neater_preference
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Select only what lacks it.
     */
    NEATER_PROHIBIT = -2,
    /**
     * Prefer what lacks it.
     */
    NEATER_AVOID = -1,
    /**
     * It does not matter.
     */
    NEATER_NO_PREFERENCE = 0,
    /**
     * Prefer what has it.
     */
    NEATER_PREFER = 1,
    /**
     * Select only what has it.
     */
    NEATER_REQUIRE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_preference neater_preference;
#else
typedef int32_t neater_preference;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A protocol stack. Programs need it for diagnosis and for endpoints that are of one protocol
 * alone (RFC 9622 section 6.1.3).
 */
enum neater_stack
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * None is chosen yet.
     */
    NEATER_STACK_NONE = 0,
    /**
     * TCP in the clear.
     */
    NEATER_STACK_TCP = 1,
    /**
     * TLS over TCP.
     */
    NEATER_STACK_TLS = 2,
    /**
     * A stream of QUIC.
     */
    NEATER_STACK_QUIC = 3,
    /**
     * Datagrams of QUIC (RFC 9221).
     */
    NEATER_STACK_QUIC_DATAGRAM = 4,
    /**
     * UDP in the clear.
     */
    NEATER_STACK_UDP = 5,
    /**
     * A stream of SCTP over UDP (RFC 6951), in the clear.
     */
    NEATER_STACK_SCTP = 6,
    /**
     * A stream of SCTP straight over IP, in the clear.
     */
    NEATER_STACK_SCTP_IP = 7,
    /**
     * A stream of SCTP over DTLS (RFC 8261).
     */
    NEATER_STACK_SCTP_DTLS = 8,
    /**
     * DTLS over UDP.
     */
    NEATER_STACK_DTLS = 9,
    /**
     * One that this version of the header has no number for.
     */
    NEATER_STACK_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_stack neater_stack;
#else
typedef uint32_t neater_stack;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How a preconnection is used.
 */
enum neater_role
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * By `neater_preconnection_initiate`.
     */
    NEATER_ROLE_INITIATE = 0,
    /**
     * By `neater_preconnection_listen`.
     */
    NEATER_ROLE_LISTEN = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_role neater_role;
#else
typedef uint32_t neater_role;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What has happened (RFC 9622 sections 7 to 11). Beside each: which member of the union is valid.
 */
enum neater_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Nothing: an event that was cleared.
     */
    NEATER_EVENT_NONE = 0,
    /**
     * The connection is established (`Ready`). No member.
     */
    NEATER_EVENT_READY = 1,
    /**
     * The connection could not be established (`EstablishmentError`): `error`. It is the last
     * event of the connection.
     */
    NEATER_EVENT_ESTABLISHMENT_ERROR = 2,
    /**
     * A message was handed to the transport (`Sent`): `sent`.
     */
    NEATER_EVENT_SENT = 3,
    /**
     * The lifetime of a message has ended before it was sent (`Expired`): `sent`.
     */
    NEATER_EVENT_EXPIRED = 4,
    /**
     * A message cannot be sent (`SendError`): `error`, with the message's number.
     */
    NEATER_EVENT_SEND_ERROR = 5,
    /**
     * There is room again after NEATER_ERROR_BLOCKED. No member.
     */
    NEATER_EVENT_WRITABLE = 6,
    /**
     * The answer to a receive (`Received`): a whole message, or the last part of one: `received`.
     */
    NEATER_EVENT_RECEIVED = 7,
    /**
     * The answer to a receive (`ReceivedPartial`): more of the message follows, or it is a byte
     * stream without boundaries: `received`.
     */
    NEATER_EVENT_RECEIVED_PARTIAL = 8,
    /**
     * The answer to a receive: the peer will send no more. No member.
     */
    NEATER_EVENT_RECEIVE_END = 9,
    /**
     * The answer to a receive (`ReceiveError`): `error`.
     */
    NEATER_EVENT_RECEIVE_ERROR = 10,
    /**
     * The network reports something that does not end the connection (`SoftError`): `error`.
     */
    NEATER_EVENT_SOFT_ERROR = 11,
    /**
     * Addresses or paths of the connection have changed (`PathChange`). No member.
     */
    NEATER_EVENT_PATH_CHANGE = 12,
    /**
     * The connection is closed, and what was sent is delivered (`Closed`). No member. It is the
     * last event of the connection, but for answers to receives.
     */
    NEATER_EVENT_CLOSED = 13,
    /**
     * The connection has failed (`ConnectionError`): `error`. It is the last event of the
     * connection, but for answers to receives.
     */
    NEATER_EVENT_CONNECTION_ERROR = 14,
    /**
     * A listener, or a group, has a new connection (`ConnectionReceived`): `accepted`.
     */
    NEATER_EVENT_CONNECTION_RECEIVED = 15,
    /**
     * A listener that delivers groups has a new one: `accepted`.
     */
    NEATER_EVENT_GROUP_RECEIVED = 16,
    /**
     * A listener has stopped (`Stopped`). No member. It is the last event of the listener.
     */
    NEATER_EVENT_STOPPED = 17,
    /**
     * A listener cannot take connections for now, and goes on by itself: `error`.
     */
    NEATER_EVENT_LISTENER_ERROR = 18,
    /**
     * The session of a group is over: `error`. It is the last event of the group.
     */
    NEATER_EVENT_GROUP_ENDED = 19,
    /**
     * A plan is ready (`neater_preconnection_plan`): `planned`.
     */
    NEATER_EVENT_PLANNED = 20,
    /**
     * A plan cannot be made, and why: `error`.
     */
    NEATER_EVENT_PLAN_ERROR = 21,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_event_kind neater_event_kind;
#else
typedef uint32_t neater_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What became of a candidate.
 */
enum neater_fate
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It was not needed, or is only planned.
     */
    NEATER_FATE_NOT_STARTED = 0,
    /**
     * It was still being tried when the race ended.
     */
    NEATER_FATE_RUNNING = 1,
    /**
     * It carries the connection.
     */
    NEATER_FATE_WON = 2,
    /**
     * It was withdrawn because another one won.
     */
    NEATER_FATE_WITHDRAWN = 3,
    /**
     * It failed; `reason` has why.
     */
    NEATER_FATE_FAILED = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_fate neater_fate;
#else
typedef uint32_t neater_fate;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What the lists of a race are of.
 */
enum neater_race_list
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Candidates: `neater_race_candidate`.
     */
    NEATER_RACE_CANDIDATES = 0,
    /**
     * Steps of establishment: `neater_race_step`.
     */
    NEATER_RACE_STEPS = 1,
    /**
     * Stacks that were not eligible, each with the properties that rule it out:
     * `neater_race_text`.
     */
    NEATER_RACE_EXCLUDED = 2,
    /**
     * What went wrong with names: `neater_race_text`.
     */
    NEATER_RACE_RESOLUTION = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_race_list neater_race_list;
#else
typedef uint32_t neater_race_list;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What lists of texts a context has about policies, by the number of `neater_context_policy_text`.
 */
enum neater_policy_list
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Where policies come from, those that count least first.
     */
    NEATER_POLICY_SOURCES = 0,
    /**
     * The profiles that a program may state (`neater_preconnection_set_policy_property`,
     * `profile`).
     */
    NEATER_POLICY_PROFILES = 1,
    /**
     * What is wrong with files of policies, or odd about them.
     */
    NEATER_POLICY_FAULTS = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_policy_list neater_policy_list;
#else
typedef uint32_t neater_policy_list;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How messages are framed over byte streams, by the number of `neater_preconnection_set_framer`.
 */
enum neater_framer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Not at all: all bytes of a direction are one message; a datagram is a message.
     */
    NEATER_FRAMER_NONE = 0,
    /**
     * By a length of 1, 2, 4 or 8 bytes in network order before each message.
     */
    NEATER_FRAMER_LENGTH_1 = 1,
    /**
     * As above, with 2 bytes.
     */
    NEATER_FRAMER_LENGTH_2 = 2,
    /**
     * As above, with 4 bytes.
     */
    NEATER_FRAMER_LENGTH_4 = 4,
    /**
     * As above, with 8 bytes.
     */
    NEATER_FRAMER_LENGTH_8 = 8,
    /**
     * By lines that end with LF; CR LF is accepted.
     */
    NEATER_FRAMER_LINES = 16,
    /**
     * By lines that are sent with CR LF, as most protocols of the Internet have it.
     */
    NEATER_FRAMER_LINES_CRLF = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_framer neater_framer;
#else
typedef uint32_t neater_framer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A change of the addresses of a connection, by the number of `neater_connection_change_endpoint`.
 */
enum neater_endpoint_change
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Use it, too (`AddRemote`, `AddLocal`).
     */
    NEATER_ENDPOINT_ADD = 0,
    /**
     * Use it no more (`RemoveRemote`, `RemoveLocal`).
     */
    NEATER_ENDPOINT_REMOVE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_endpoint_change neater_endpoint_change;
#else
typedef uint32_t neater_endpoint_change;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How the connection served, by the number of `neater_connection_report`.
 */
enum neater_service_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * What was asked over it was answered.
     */
    NEATER_SERVICE_ANSWERED = 0,
    /**
     * What was asked over it was not answered.
     */
    NEATER_SERVICE_SILENT = 1,
    /**
     * The peer broke the rules of what was spoken over it.
     */
    NEATER_SERVICE_BROKEN = 2,
    /**
     * The peer demanded another protocol.
     */
    NEATER_SERVICE_WANTS_OTHER = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_service_outcome neater_service_outcome;
#else
typedef uint32_t neater_service_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The state of a connection (RFC 9622 section 11, `connState`).
 */
enum neater_connection_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Being set up.
     */
    NEATER_STATE_ESTABLISHING = 0,
    /**
     * In use.
     */
    NEATER_STATE_ESTABLISHED = 1,
    /**
     * Closed from this side; what was sent is still being delivered.
     */
    NEATER_STATE_CLOSING = 2,
    /**
     * Over.
     */
    NEATER_STATE_CLOSED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_connection_state neater_connection_state;
#else
typedef uint32_t neater_connection_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A text that is known of a connection, by the number of `neater_connection_text`.
 */
enum neater_connection_text_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The peer's address and port.
     */
    NEATER_TEXT_REMOTE_ADDRESS = 0,
    /**
     * This side's address and port.
     */
    NEATER_TEXT_LOCAL_ADDRESS = 1,
    /**
     * The application protocol agreed on by ALPN.
     */
    NEATER_TEXT_ALPN = 2,
    /**
     * The security protocol in use, in words; empty in the clear.
     */
    NEATER_TEXT_SECURITY = 3,
    /**
     * The protocol stack.
     */
    NEATER_TEXT_STACK = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_connection_text_kind neater_connection_text_kind;
#else
typedef uint32_t neater_connection_text_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether a path is used.
 */
enum neater_path_use
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The peer has not answered from there yet: no data goes there.
     */
    NEATER_PATH_UNCONFIRMED = 0,
    /**
     * Data goes this way.
     */
    NEATER_PATH_IN_USE = 1,
    /**
     * It works, and data goes another way.
     */
    NEATER_PATH_STANDBY = 2,
    /**
     * Packets on it have not been answered lately.
     */
    NEATER_PATH_POTENTIALLY_FAILED = 3,
    /**
     * It does not work, and is probed.
     */
    NEATER_PATH_INACTIVE = 4,
    /**
     * Another one, for which this version of the header has no number.
     */
    NEATER_PATH_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_path_use neater_path_use;
#else
typedef uint32_t neater_path_use;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a `neater_challenge_fn` answers.
 */
enum neater_challenge_answer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Nothing is signed, and the handshake fails. Numbers without a name mean the same.
     */
    NEATER_CHALLENGE_REFUSE = 0,
    /**
     * The library signs, with the key that it was given.
     */
    NEATER_CHALLENGE_SIGN = 1,
    /**
     * The program has signed: `signature` and `signature_length` have the result.
     */
    NEATER_CHALLENGE_SIGNED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum neater_challenge_answer neater_challenge_answer;
#else
typedef uint32_t neater_challenge_answer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A connection: messages in, messages out, over whichever transport was chosen.
 */
typedef struct neater_connection neater_connection;

/**
 * One transport system: connections, listeners and caches that belong together. A program may have
 * several, which share nothing.
 */
typedef struct neater_context neater_context;

/**
 * Why something has failed.
 */
typedef struct neater_error neater_error;

/**
 * The connections that share a transport connection.
 */
typedef struct neater_group neater_group;

/**
 * Receives connections over every eligible protocol.
 */
typedef struct neater_listener neater_listener;

/**
 * Where a connection comes from, or a listener listens (`LocalEndpoint` of RFC 9622). A plain
 * value without a context.
 */
typedef struct neater_local_endpoint neater_local_endpoint;

/**
 * A name whose addresses the program is asked for.
 */
typedef struct neater_lookup neater_lookup;

/**
 * A message that was received, or a part of one, with what is known of it.
 */
typedef struct neater_message neater_message;

/**
 * The properties of messages that are sent (`MessageContext` of RFC 9622): a plain value, which
 * any number of messages can be sent with.
 */
typedef struct neater_message_context neater_message_context;

/**
 * What connections and listeners are made from (`Preconnection` of RFC 9622). It can be used any
 * number of times, and changing it afterwards does not affect what was made from it.
 */
typedef struct neater_preconnection neater_preconnection;

/**
 * How establishment went: its candidates with the fate of each, its steps, and what was ruled out
 * before it began.
 */
typedef struct neater_race neater_race;

/**
 * Where a connection goes (`RemoteEndpoint` of RFC 9622): at most one name, address, port and
 * interface each. A plain value without a context.
 */
typedef struct neater_remote_endpoint neater_remote_endpoint;

/**
 * What is asked of security (`SecurityParameters` of RFC 9622): a plain value without a context.
 */
typedef struct neater_security_parameters neater_security_parameters;

/**
 * What is asked of a transport (`TransportProperties` of RFC 9622): a plain value without a
 * context.
 */
typedef struct neater_transport_properties neater_transport_properties;

/**
 * A candidate of a race. `size` is set by the program to `sizeof(neater_candidate)`.
 */
typedef struct neater_candidate {
    /**
     * `sizeof(neater_candidate)`.
     */
    size_t size;
    /**
     * The protocol: a `neater_stack`.
     */
    uint32_t stack;
    /**
     * A `neater_fate`.
     */
    uint32_t fate;
    /**
     * When it was started, in microseconds from the call that began the race; -1 if it never was.
     * Of a plan: when it would be.
     */
    int64_t started_us;
    /**
     * When its peer answered, likewise; -1 if it did not.
     */
    int64_t reachable_us;
    /**
     * When it ended, likewise; -1 if it has not.
     */
    int64_t ended_us;
    /**
     * Why it failed, in words that live as long as the race; NULL if it did not.
     */
    const char *reason;
    /**
     * What earlier establishments hold against it, for which it stood behind others; NULL if
     * nothing.
     */
    const char *doubt;
    /**
     * Its address and port, as text.
     */
    char remote[64];
    /**
     * The UDP port that SCTP is encapsulated to; 0 if it is not.
     */
    uint32_t encapsulation_port;
    /**
     * Not used.
     */
    uint32_t reserved;
} neater_candidate;

/**
 * A step of establishment. `size` is set by the program to `sizeof(neater_step)`.
 */
typedef struct neater_step {
    /**
     * `sizeof(neater_step)`.
     */
    size_t size;
    /**
     * When, in microseconds from the call that began it.
     */
    int64_t at_us;
    /**
     * What, in words that live as long as the race.
     */
    const char *text;
} neater_step;

/**
 * Which message.
 */
typedef struct neater_event_sent {
    /**
     * The number that the sending function gave.
     */
    uint64_t message_id;
} neater_event_sent;

/**
 * What was received.
 */
typedef struct neater_event_received {
    /**
     * The event's own, until it is taken.
     */
    struct neater_message *message;
} neater_event_received;

/**
 * What was accepted.
 */
typedef struct neater_event_accepted {
    /**
     * The new connection: the event's own, until it is taken. NULL for
     * NEATER_EVENT_GROUP_RECEIVED.
     */
    struct neater_connection *connection;
    /**
     * The new group: the event's own, until it is taken. NULL for
     * NEATER_EVENT_CONNECTION_RECEIVED.
     */
    struct neater_group *group;
} neater_event_accepted;

/**
 * What has failed.
 */
typedef struct neater_event_error {
    /**
     * Why: the event's own, until it is taken.
     */
    struct neater_error *error;
    /**
     * Which message, for NEATER_EVENT_SEND_ERROR.
     */
    uint64_t message_id;
} neater_event_error;

/**
 * What was planned.
 */
typedef struct neater_event_planned {
    /**
     * The candidates in the order in which they would be tried: the event's own, until it is
     * taken.
     */
    struct neater_race *race;
} neater_event_planned;

/**
 * What belongs to an event; its `kind` states which member is valid.
 */
typedef union neater_event_data {
    /**
     * Of a message that was sent or has expired.
     */
    struct neater_event_sent sent;
    /**
     * Of a message that was received.
     */
    struct neater_event_received received;
    /**
     * Of a connection or group that was accepted.
     */
    struct neater_event_accepted accepted;
    /**
     * Of an error.
     */
    struct neater_event_error error;
    /**
     * Of a plan.
     */
    struct neater_event_planned planned;
    /**
     * Room for later versions.
     */
    uint64_t reserved[6];
} neater_event_data;

/**
 * An event. `size` is set by the program to `sizeof(neater_event)` before the event is taken.
 */
typedef struct neater_event {
    /**
     * `sizeof(neater_event)`.
     */
    size_t size;
    /**
     * A `neater_event_kind`.
     */
    uint32_t kind;
    /**
     * Not used.
     */
    uint32_t reserved;
    /**
     * The connection whose event it is, or NULL. It stays the program's, and is valid while the
     * program has not given it back.
     */
    struct neater_connection *connection;
    /**
     * The listener whose event it is, or NULL; likewise.
     */
    struct neater_listener *listener;
    /**
     * The group whose event it is, or NULL; likewise.
     */
    struct neater_group *group;
    /**
     * What the program has set as user of the object.
     */
    void *user;
    /**
     * What belongs to it.
     */
    union neater_event_data data;
} neater_event;

/**
 * Called when connections wait for the addresses of a name, once for all of them, instead of name
 * servers (`names_by` of `neater_context_options`). Names of the hosts file and special ones
 * (`localhost`) are not asked for.
 *
 * It is called from the thread that drives, and may call every function except those that drive.
 * It should not wait: `neater_lookup_answer` may come later, from any thread.
 *
 * Ownership: the lookup is the program's, to be answered or given back.
 */
typedef void (*neater_lookup_fn)(struct neater_lookup *lookup, void *user);

/**
 * What a context is made with. `size` is set by the program to `sizeof(neater_context_options)`;
 * zeros are defaults.
 */
typedef struct neater_context_options {
    /**
     * `sizeof(neater_context_options)`.
     */
    size_t size;
    /**
     * What policies call this program; NULL: the name of its file.
     */
    const char *application;
    /**
     * Folders of policies, with `:` between them, of which each must be there; NULL: the usual
     * ones.
     */
    const char *policies;
    /**
     * 1: no policies, wherever they may lie.
     */
    uint32_t without_policies;
    /**
     * 1: `neater_context_new` fails while a file of policies cannot be used.
     */
    uint32_t strict_policies;
    /**
     * 1: names are looked up by the system's resolver, in helper threads, instead of at name
     * servers.
     */
    uint32_t names_by_system;
    /**
     * 1: the keys of TLS and QUIC sessions are written to the file that the environment names in
     * `SSLKEYLOGFILE`, if it names one.
     */
    uint32_t key_log_from_environment;
    /**
     * 1: SCTP over UDP and IP offers congestion marks (ECN).
     */
    uint32_t sctp_ecn;
    /**
     * Not used; 0.
     */
    uint32_t reserved;
    /**
     * Another resolver configuration than the system's; NULL: `/etc/resolv.conf`.
     */
    const char *resolv_conf;
    /**
     * Another hosts file than the system's; NULL: `/etc/hosts`.
     */
    const char *hosts;
    /**
     * A folder for logs of QUIC connections in the qlog format; NULL: none are written.
     */
    const char *qlog_dir;
    /**
     * 32 bytes from which everything random follows, for tests; NULL: the system's random numbers.
     */
    const void *seed;
    /**
     * 32 secret bytes that a server keeps from one run to the next, for stateless resets of QUIC;
     * NULL: none.
     */
    const void *reset_secret;
    /**
     * Bytes that may wait to be sent on one connection; 0: 256 kB.
     */
    size_t limit_send_buffer;
    /**
     * Bytes that may wait to be sent on all connections together; 0: 64 MB.
     */
    size_t limit_engine_bytes;
    /**
     * The longest message, in bytes; 0: 64 MB.
     */
    size_t limit_message;
    /**
     * Connections per listener that were received and not taken; 0: 1,024.
     */
    size_t limit_untaken;
    /**
     * Incoming connections per listener whose handshake is not finished; 0: 1,024.
     */
    size_t limit_handshakes;
    /**
     * Connections in all; 0: 1,000,000.
     */
    size_t limit_connections;
    /**
     * Looks names up instead of name servers; NULL: none does.
     */
    neater_lookup_fn names_by;
    /**
     * What that function is given. It must live as long as the context, and lookups that wait.
     */
    void *names_user;
} neater_context_options;

/**
 * Called with each event of an object or a context. What belongs to the event is given back when
 * the function returns, unless it was taken (`neater_event_take_message` and its like). The
 * function may call every function of the library, and give back every object, those of the event
 * and the context included; only `neater_process`, `neater_poll_event` and `neater_context_drain`
 * answer NEATER_ERROR_REENTRANT there. It is called from the thread that drives, without any lock
 * held.
 */
typedef void (*neater_event_fn)(struct neater_event *event, void *user);

/**
 * Figures of a context since it was made. `size` is set by the program to
 * `sizeof(neater_context_statistics)`.
 */
typedef struct neater_context_statistics {
    /**
     * `sizeof(neater_context_statistics)`.
     */
    size_t size;
    /**
     * Connections that exist now.
     */
    uint64_t connections;
    /**
     * Listeners that exist now.
     */
    uint64_t listeners;
    /**
     * Connection groups that exist now.
     */
    uint64_t groups;
    /**
     * QUIC connections that exist now.
     */
    uint64_t quic_connections;
    /**
     * SCTP associations that exist now.
     */
    uint64_t sctp_associations;
    /**
     * Bytes that wait to be sent now.
     */
    uint64_t bytes_queued;
    /**
     * Connections initiated.
     */
    uint64_t initiated;
    /**
     * Connections established, by either side.
     */
    uint64_t established;
    /**
     * Connections that could not be established.
     */
    uint64_t failed;
    /**
     * Attempts started.
     */
    uint64_t attempts;
    /**
     * Connections that a cached outcome opened with one attempt.
     */
    uint64_t cache_hits;
    /**
     * Connections received by listeners.
     */
    uint64_t received;
    /**
     * Incoming connections turned away at a limit.
     */
    uint64_t refused;
} neater_context_statistics;

/**
 * A certificate in DER, as a callback sees it.
 */
typedef struct neater_certificate {
    /**
     * Its bytes.
     */
    const void *data;
    /**
     * How many.
     */
    size_t length;
} neater_certificate;

/**
 * Asked during the handshake whether the peer is trusted (`SetTrustVerificationCallback`): its
 * chain, end entity first, and the name of the server, which is empty for clients. False ends the
 * handshake.
 *
 * It is called while the engine is at work, from any thread that drives: it must not wait, and
 * functions of contexts, and of what was made from them, answer NEATER_ERROR_REENTRANT there. What
 * it is given lives until it returns.
 */
typedef bool (*neater_trust_fn)(const struct neater_certificate *chain,
                                size_t certificates,
                                const char *server_name,
                                void *user);

/**
 * What is to be signed, so that the peer may know who this side is. It lives until the callback
 * returns.
 */
typedef struct neater_challenge {
    /**
     * `sizeof(neater_challenge)` of the library: a program that is newer than it finds fewer
     * fields.
     */
    size_t size;
    /**
     * The certificates whose key is asked for, end entity first.
     */
    const struct neater_certificate *chain;
    /**
     * How many.
     */
    size_t certificates;
    /**
     * What to sign. It is not a hash: the scheme states which one it takes.
     */
    const void *message;
    /**
     * How many bytes that is.
     */
    size_t length;
    /**
     * How to sign: a `SignatureScheme` of TLS by its number in IANA's registry.
     */
    uint32_t scheme;
    /**
     * Not used; 0.
     */
    uint32_t reserved;
    /**
     * The same by its name: `ECDSA_NISTP256_SHA256`; empty where the library has none.
     */
    const char *scheme_name;
    /**
     * Where the program writes a signature of its own, in the encoding of TLS (ECDSA: DER).
     */
    void *signature;
    /**
     * How many bytes fit there.
     */
    size_t signature_room;
    /**
     * How many bytes the program has written there.
     */
    size_t signature_length;
} neater_challenge;

/**
 * Asked whenever a handshake needs a signature of this side, as a client or as a server
 * (`SetIdentityChallengeCallback`); not when a session is resumed. It returns a
 * `neater_challenge_answer`.
 *
 * It is called while the engine is at work, from any thread that drives: it must not wait for
 * long, and functions of contexts, and of what was made from them, answer NEATER_ERROR_REENTRANT
 * there.
 */
typedef uint32_t (*neater_challenge_fn)(struct neater_challenge *challenge, void *user);

/**
 * What is known of a received message. `size` is set by the program to
 * `sizeof(neater_message_info)`.
 */
typedef struct neater_message_info {
    /**
     * `sizeof(neater_message_info)`.
     */
    size_t size;
    /**
     * 1: the message ends with these bytes. 0: more of it follows, or it is a byte stream without
     * boundaries.
     */
    uint32_t end_of_message;
    /**
     * 1: no message follows (`final`), as far as that was known when it was received.
     */
    uint32_t is_final;
    /**
     * 1: it came as early data and may be a replay: nothing that must not be done twice may follow
     * from it (RFC 9622 section 9.3.3.2).
     */
    uint32_t early_data;
    /**
     * The ECN codepoint of its datagram, 0 to 3 (RFC 3168); -1 where there is none.
     */
    int32_t ecn;
    /**
     * The stream that it came on, where the connection is a whole SCTP association; else -1.
     */
    int32_t stream;
    /**
     * Not used.
     */
    uint32_t reserved;
    /**
     * Its payload protocol identifier there; else -1.
     */
    int64_t payload_protocol;
    /**
     * Distinguishes messages whose parts alternate, which only those of a whole SCTP association
     * do; else -1.
     */
    int64_t number;
} neater_message_info;

/**
 * Called when the library needs bytes no more that `neater_connection_send_owned` was given. It
 * may be called from any thread that drives or calls a function, once. Functions of contexts, and
 * of what was made from them, answer NEATER_ERROR_REENTRANT there.
 */
typedef void (*neater_release_fn)(const void *data, void *user);

/**
 * What a receive asks for. `size` is set by the program to `sizeof(neater_receive_options)`; zeros
 * are defaults.
 */
typedef struct neater_receive_options {
    /**
     * `sizeof(neater_receive_options)`.
     */
    size_t size;
    /**
     * `minIncompleteLength`: fewer bytes than this are no answer, unless the message ends with
     * them. 0: any.
     */
    size_t min_incomplete_length;
    /**
     * `maxLength`: longer messages are delivered in parts of at most so many bytes. 0: whole
     * messages; of a byte stream without boundaries, what has arrived.
     */
    size_t max_length;
} neater_receive_options;

/**
 * A path of a connection's transport. `size` is set by the program to `sizeof(neater_path)`.
 */
typedef struct neater_path {
    /**
     * `sizeof(neater_path)`.
     */
    size_t size;
    /**
     * A `neater_path_use`.
     */
    uint32_t state;
    /**
     * Not used.
     */
    uint32_t reserved;
    /**
     * Smoothed round-trip time in microseconds; -1 while it is not measured.
     */
    int64_t rtt_us;
    /**
     * Congestion window in bytes.
     */
    uint64_t window;
    /**
     * Bytes that are on their way.
     */
    uint64_t in_flight;
    /**
     * Packets or chunks with data sent, retransmissions included.
     */
    uint64_t sent;
    /**
     * Of those, how many the path is believed to have lost.
     */
    uint64_t lost;
    /**
     * Bytes of payload that have been acknowledged.
     */
    uint64_t delivered;
    /**
     * Bytes of payload that have come by it.
     */
    uint64_t received;
    /**
     * Our address, as text.
     */
    char local[64];
    /**
     * The peer's address, as text.
     */
    char remote[64];
    /**
     * The interface that packets are bound to leave by; empty where they are not.
     */
    char interface[32];
} neater_path;

/**
 * Figures of a connection. `size` is set by the program to `sizeof(neater_connection_statistics)`.
 */
typedef struct neater_connection_statistics {
    /**
     * `sizeof(neater_connection_statistics)`.
     */
    size_t size;
    /**
     * Bytes handed to the transport.
     */
    uint64_t bytes_sent;
    /**
     * Bytes handed to the program.
     */
    uint64_t bytes_received;
    /**
     * Messages handed to the transport.
     */
    uint64_t messages_sent;
    /**
     * Messages handed to the program.
     */
    uint64_t messages_received;
    /**
     * Datagrams dropped because the program did not take them in time, or because its framer could
     * make nothing of them.
     */
    uint64_t datagrams_dropped;
    /**
     * How long establishment took, in microseconds.
     */
    int64_t establishment_us;
    /**
     * Smoothed round-trip time in microseconds; -1 where the transport does not know it.
     */
    int64_t rtt_us;
    /**
     * Congestion window in bytes; -1 where the transport does not know it.
     */
    int64_t congestion_window;
    /**
     * Bytes that wait to be sent.
     */
    uint64_t queued;
    /**
     * Grows with what the peer has acknowledged, in bytes on the wire, of all streams of its
     * session together; -1 where nothing is known.
     */
    int64_t acknowledged;
    /**
     * Bytes that were taken for delivery and that the peer has not acknowledged; -1 where nothing
     * is known.
     */
    int64_t pending;
} neater_connection_statistics;

/**
 * An address at which a listener listens. `size` is set by the program to
 * `sizeof(neater_listening)`.
 */
typedef struct neater_listening {
    /**
     * `sizeof(neater_listening)`.
     */
    size_t size;
    /**
     * The protocol: a `neater_stack`.
     */
    uint32_t stack;
    /**
     * Not used.
     */
    uint32_t reserved;
    /**
     * Address and port, as text.
     */
    char address[64];
} neater_listening;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The status of an error. NEATER_OK for NULL.
 *
 * Thread: any, but not while the error is given back.
 */
neater_status neater_error_status(const struct neater_error *error);

/**
 * What was wrong and what to do, in words that end with a zero byte: of establishment every
 * candidate on a line of its own. Never NULL.
 *
 * Lifetime: as long as the error. Not to be freed. Thread: any, but not while the error is given
 * back.
 */
const char *neater_error_text(const struct neater_error *error);

/**
 * The number of the operating system's error (errno) behind this one; 0 if there is none.
 *
 * Thread: any, but not while the error is given back.
 */
int32_t neater_error_system_code(const struct neater_error *error);

/**
 * The code that the peer's application gave when it reset a stream or ended a session (QUIC,
 * SCTP); 0 if it gave none.
 *
 * Thread: any, but not while the error is given back.
 */
uint64_t neater_error_application_code(const struct neater_error *error);

/**
 * How the race went whose end this error is: every candidate and its reason, as lists. NULL if it
 * is no error of establishment.
 *
 * Lifetime: as long as the error. Not to be freed. Thread: any, but not while the error is given
 * back.
 */
const struct neater_race *neater_error_race(const struct neater_error *error);

/**
 * Gives an error of an event back. NULL is allowed. What `neater_last_error` returns must not be
 * given here.
 *
 * Ownership: the error is gone afterwards, and so is what was taken from it. Thread: any.
 */
void neater_error_free(struct neater_error *error);

/**
 * A few words for a status, without what is known of a particular error. Never NULL.
 *
 * Lifetime: for ever. Thread: any.
 */
const char *neater_status_text(int32_t status);

/**
 * How long a list of a race is; `list` is a `neater_race_list`. Negative: an error.
 *
 * Thread: any, but not while the race is given back.
 */
int64_t neater_race_count(const struct neater_race *race, uint32_t list);

/**
 * A candidate by its number, best first, into `*candidate`, whose `size` the program has set.
 * NEATER_ERROR_NOT_FOUND beyond the last.
 *
 * Lifetime: the texts in it live as long as the race. Thread: any, but not while the race is given
 * back.
 */
neater_status neater_race_candidate(const struct neater_race *race,
                                    size_t index,
                                    struct neater_candidate *candidate);

/**
 * A step of establishment by its number, in the order of time, into `*step`, whose `size` the
 * program has set. NEATER_ERROR_NOT_FOUND beyond the last.
 *
 * Lifetime: the text in it lives as long as the race. Thread: any, but not while the race is given
 * back.
 */
neater_status neater_race_step(const struct neater_race *race, size_t index, struct neater_step *step);

/**
 * A line of NEATER_RACE_EXCLUDED or NEATER_RACE_RESOLUTION by its number; NULL beyond the last,
 * and for other lists.
 *
 * Lifetime: as long as the race. Not to be freed. Thread: any, but not while the race is given
 * back.
 */
const char *neater_race_text(const struct neater_race *race, uint32_t list, size_t index);

/**
 * Gives a race back that `neater_connection_race` or an event has given. NULL is allowed. One of
 * `neater_error_race` is its error's.
 *
 * Ownership: the race is gone afterwards, with all texts in it. Thread: any.
 */
void neater_race_free(struct neater_race *race);

/**
 * The error of the last function that failed on this thread; NULL if none has.
 *
 * Lifetime: until the next function of this library fails on this thread, or the thread ends. Not
 * to be freed. Thread: any; each thread has its own.
 */
const struct neater_error *neater_last_error(void);

/**
 * Gives back what belongs to an event and was not taken: message, error, connection, group or
 * race. NULL is allowed, and so is an event that was cleared. To be called once for each event of
 * `neater_poll_event`, before the struct is used again; callbacks need not.
 *
 * Thread: one at a time for an event.
 */
neater_status neater_event_clear(struct neater_event *event);

/**
 * Takes the message out of an event. NULL if it has none, or it was taken.
 *
 * Ownership: the caller's, to be given back by `neater_message_free`. Thread: one at a time for an
 * event.
 */
struct neater_message *neater_event_take_message(struct neater_event *event);

/**
 * Takes the connection out of NEATER_EVENT_CONNECTION_RECEIVED. NULL if it has none, or it was
 * taken. What is not taken is closed when the event is cleared.
 *
 * Ownership: the caller's, to be given back by `neater_connection_free`. Thread: one at a time for
 * an event.
 */
struct neater_connection *neater_event_take_connection(struct neater_event *event);

/**
 * Takes the group out of NEATER_EVENT_GROUP_RECEIVED. NULL if it has none, or it was taken.
 *
 * Ownership: the caller's, to be given back by `neater_group_free`. Thread: one at a time for an
 * event.
 */
struct neater_group *neater_event_take_group(struct neater_event *event);

/**
 * Takes the error out of an event. NULL if it has none, or it was taken.
 *
 * Ownership: the caller's, to be given back by `neater_error_free`. Thread: one at a time for an
 * event.
 */
struct neater_error *neater_event_take_error(struct neater_event *event);

/**
 * Takes the race out of NEATER_EVENT_PLANNED. NULL if it has none, or it was taken.
 *
 * Ownership: the caller's, to be given back by `neater_race_free`. Thread: one at a time for an
 * event.
 */
struct neater_race *neater_event_take_race(struct neater_event *event);

/**
 * The name of a `neater_event_kind` in small letters, as RFC 9622 has it with `_` between words:
 * `ready`, `connection_received`. Never NULL.
 *
 * Lifetime: for ever. Thread: any.
 */
const char *neater_event_name(uint32_t kind);

/**
 * The name, as the program wrote it. NULL for NULL.
 *
 * Lifetime: until the lookup is answered or given back. Thread: any.
 */
const char *neater_lookup_name(const struct neater_lookup *lookup);

/**
 * The index of the interface that the addresses are for; 0: any. Negative: an error.
 *
 * Thread: any.
 */
int64_t neater_lookup_interface(const struct neater_lookup *lookup);

/**
 * Answers with addresses as texts, 128 at most, and for how many milliseconds they hold for
 * further connections; 0: for those that wait now. They are tried in the order of RFC 6724. No
 * address at all means that there is no such name.
 *
 * Ownership: after NEATER_OK the lookup is gone; after an error it is still the program's. The
 * texts are copied. Thread: any.
 */
neater_status neater_lookup_answer(struct neater_lookup *lookup,
                                   const char *const *addresses,
                                   size_t count,
                                   uint64_t lifetime_ms);

/**
 * Gives a lookup back without an answer: the connections that wait for it have none either. NULL
 * is allowed. One that is kept for 30 seconds has failed, too, and is given back all the same.
 *
 * Ownership: it is gone afterwards. Thread: any.
 */
void neater_lookup_free(struct neater_lookup *lookup);

/**
 * Makes a context, into `*context`. NULL options are the defaults. It has no threads of its own:
 * the program drives it, by `neater_poll_event`, or by `neater_process` whenever `neater_fd` is
 * readable.
 *
 * Ownership: the caller's, to be given back by `neater_context_free`; everything that the options
 * point to is copied. Thread: any.
 */
neater_status neater_context_new(const struct neater_context_options *options,
                                 struct neater_context **context);

/**
 * Gives a context back. NULL is allowed. Nothing drives it any more: its connections are cut off,
 * and what was sent and is not delivered is lost (`neater_context_drain` before this delivers it).
 * Its objects stay valid until they are given back, in any order, and answer
 * NEATER_ERROR_NO_CONTEXT or NEATER_ERROR_NETWORK.
 *
 * Ownership: the object is gone afterwards. Thread: any, also from within a callback, but not
 * while another thread drives.
 */
void neater_context_free(struct neater_context *context);

/**
 * The descriptor to watch for reading in an event loop: it is readable when `neater_process` has
 * something to do, at every deadline, and while events wait. It may be watched level-triggered,
 * edge-triggered or one-shot, from inside another epoll or event loop. -1 for NULL.
 *
 * Ownership: the context's; it must not be read or closed. Thread: any.
 */
int32_t neater_fd(const struct neater_context *context);

/**
 * How long an event loop may wait for the descriptor, in milliseconds: 0 if there is something to
 * do at once, -1 for ever, since the descriptor is readable at every deadline, too.
 *
 * Thread: any.
 */
int32_t neater_timeout_ms(const struct neater_context *context);

/**
 * Does what there is to do, without waiting, and hands events to callbacks, 256 at most. Returns
 * how many events wait for `neater_poll_event`, or a negative status.
 *
 * Thread: one drives at a time, others wait for it. From within a callback:
 * NEATER_ERROR_REENTRANT.
 */
int64_t neater_process(struct neater_context *context);

/**
 * Takes the next event, into `*event`, whose `size` the program has set, and drives meanwhile: it
 * waits for `timeout_ms` milliseconds at most, 0: not at all, negative: for ever. Returns 1 for an
 * event, 0 if there was none in that time or a signal came, or a negative status. Events of
 * objects with a callback go there.
 *
 * Ownership: what belongs to the event is the program's: take it, and call `neater_event_clear`.
 * Thread: one drives at a time, others wait for it. From within a callback:
 * NEATER_ERROR_REENTRANT.
 */
int64_t neater_poll_event(struct neater_context *context, struct neater_event *event, int32_t timeout_ms);

/**
 * Drives until no connection is left, so that what was sent is delivered and closes are complete:
 * `timeout_ms` milliseconds at most, then NEATER_ERROR_TIMED_OUT; negative: for ever. To be called
 * when all connections were closed or given back. Events go to callbacks; others are kept for
 * `neater_poll_event`.
 *
 * Thread: one drives at a time, others wait for it. From within a callback:
 * NEATER_ERROR_REENTRANT.
 */
neater_status neater_context_drain(struct neater_context *context, int32_t timeout_ms);

/**
 * Has events delivered to a function, by `neater_process`, instead of `neater_poll_event`: those
 * of objects without a callback of their own. NULL takes it away.
 *
 * Lifetime: `user` must live as long as the context is not given back. Thread: any; the function
 * is called from the thread that drives.
 */
neater_status neater_context_set_callback(struct neater_context *context,
                                          neater_event_fn callback,
                                          void *user);

/**
 * Figures of a context, into `*statistics`, whose `size` the program has set.
 *
 * Thread: any.
 */
neater_status neater_context_get_statistics(const struct neater_context *context,
                                            struct neater_context_statistics *statistics);

/**
 * Forgets names and outcomes of races: the next connection resolves and races from the beginning.
 *
 * Thread: any.
 */
neater_status neater_context_flush_caches(struct neater_context *context);

/**
 * What the races of this context have taught, as text for `neater_context_import_outcomes` in a
 * later process of this host, as far as it fits into `room` bytes with a zero byte behind it; 1
 * MiB at most. Returns how long all of it is without that byte, 0 if there is nothing, or a
 * negative status. There are addresses of servers in it: keep it where only the user can read it.
 *
 * Thread: any.
 */
int64_t neater_context_export_outcomes(const struct neater_context *context, char *buffer, size_t room);

/**
 * Lets connections begin with what earlier processes have found to work. Returns how many entries
 * have come, or a negative status.
 *
 * Ownership: the text is copied. Thread: any.
 */
int64_t neater_context_import_outcomes(struct neater_context *context, const char *outcomes);

/**
 * A line of a list about policies (`neater_policy_list`) by its number, as far as it fits into
 * `room` bytes with a zero byte behind it. Returns how long it is without that byte,
 * NEATER_ERROR_NOT_FOUND beyond the last, or another negative status.
 *
 * Thread: any.
 */
int64_t neater_context_policy_text(struct neater_context *context,
                                   uint32_t list,
                                   size_t index,
                                   char *buffer,
                                   size_t room);

/**
 * The version of the library, as text: `0.1.0`. Never NULL.
 *
 * Lifetime: for ever. Thread: any.
 */
const char *neater_version(void);

/**
 * Makes an endpoint without any identifier (`NewRemoteEndpoint`), into `*endpoint`.
 *
 * Ownership: the caller's, to be given back by `neater_remote_endpoint_free`. Thread: any.
 */
neater_status neater_remote_endpoint_new(struct neater_remote_endpoint **endpoint);

/**
 * Makes an endpoint from a text: `host:port`, `192.0.2.1:443` or `[2001:db8::1]:443`, into
 * `*endpoint`.
 *
 * Ownership: the caller's, to be given back by `neater_remote_endpoint_free`. Thread: any.
 */
neater_status neater_remote_endpoint_parse(const char *host_and_port,
                                           struct neater_remote_endpoint **endpoint);

/**
 * Gives an endpoint back. NULL is allowed. What was made with it is not affected.
 *
 * Ownership: it is gone afterwards. Thread: any.
 */
void neater_remote_endpoint_free(struct neater_remote_endpoint *endpoint);

/**
 * Names the host (`WithHostName`), which is resolved when a connection is initiated. An address is
 * taken as one, also with its interface (`fe80::1%eth0`).
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_host_name(struct neater_remote_endpoint *endpoint,
                                                    const char *name);

/**
 * Sets the port (`WithPort`).
 *
 * Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_port(struct neater_remote_endpoint *endpoint, uint16_t port);

/**
 * Sets the port that a service has in this system's list of services (`WithService`): `https`. DNS
 * SRV names are not looked up.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_service(struct neater_remote_endpoint *endpoint,
                                                  const char *service);

/**
 * Sets the address (`WithIPAddress`), as text.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_ip_address(struct neater_remote_endpoint *endpoint,
                                                     const char *address);

/**
 * Names the interface that qualifies a link-local address (`WithInterface`).
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_interface(struct neater_remote_endpoint *endpoint,
                                                    const char *name);

/**
 * Applies the endpoint to one protocol alone (`WithProtocol`): a `neater_stack`.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_protocol(struct neater_remote_endpoint *endpoint,
                                                   uint32_t protocol);

/**
 * Sets the UDP port of the peer that SCTP is encapsulated to (RFC 6951), where it is not 9899.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_remote_endpoint_with_udp_port(struct neater_remote_endpoint *endpoint, uint16_t port);

/**
 * Makes an endpoint without any identifier (`NewLocalEndpoint`), into `*endpoint`: any address, a
 * port that the system chooses.
 *
 * Ownership: the caller's, to be given back by `neater_local_endpoint_free`. Thread: any.
 */
neater_status neater_local_endpoint_new(struct neater_local_endpoint **endpoint);

/**
 * Gives an endpoint back. NULL is allowed. What was made with it is not affected.
 *
 * Ownership: it is gone afterwards. Thread: any.
 */
void neater_local_endpoint_free(struct neater_local_endpoint *endpoint);

/**
 * Sets the port (`WithPort`); 0 lets the system choose.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_local_endpoint_with_port(struct neater_local_endpoint *endpoint, uint16_t port);

/**
 * Sets the port that a service has in this system's list of services (`WithService`): `https`.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_local_endpoint_with_service(struct neater_local_endpoint *endpoint, const char *service);

/**
 * Sets the address (`WithIPAddress`), as text. For a listener `::` means any, IPv4 included.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_local_endpoint_with_ip_address(struct neater_local_endpoint *endpoint,
                                                    const char *address);

/**
 * Binds to an interface (`WithInterface`).
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_local_endpoint_with_interface(struct neater_local_endpoint *endpoint, const char *name);

/**
 * Sets the UDP port at which a listener takes SCTP (RFC 6951), where it is not 9899; 0 lets the
 * system choose.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_local_endpoint_with_udp_port(struct neater_local_endpoint *endpoint, uint16_t port);

/**
 * Makes properties with the defaults of RFC 9622 (`NewTransportProperties`), into `*properties`.
 *
 * Ownership: the caller's, to be given back by `neater_transport_properties_free`. Thread: any.
 */
neater_status neater_transport_properties_new(struct neater_transport_properties **properties);

/**
 * Makes properties from words, such as `"reliable, low-delay, multistreaming=avoid"`, into
 * `*properties`. Words about security are an error here: `neater_preconnection_set_needs` takes
 * them.
 *
 * Ownership: the caller's, to be given back by `neater_transport_properties_free`. Thread: any.
 */
neater_status neater_transport_properties_parse(const char *words,
                                                struct neater_transport_properties **properties);

/**
 * Copies properties, into `*copy`.
 *
 * Ownership: the copy is the caller's, to be given back by `neater_transport_properties_free`.
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_clone(const struct neater_transport_properties *properties,
                                                struct neater_transport_properties **copy);

/**
 * Gives properties back. NULL is allowed. What was made with them is not affected.
 *
 * Ownership: they are gone afterwards. Thread: any.
 */
void neater_transport_properties_free(struct neater_transport_properties *properties);

/**
 * Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
 * `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
 * matter.
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_transport_properties_set_text(struct neater_transport_properties *properties,
                                                   const char *name,
                                                   const char *value);

/**
 * Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
 * second.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_set_number(struct neater_transport_properties *properties,
                                                     const char *name,
                                                     double value);

/**
 * Sets a property by its name of RFC 9622 to a Boolean.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_set_boolean(struct neater_transport_properties *properties,
                                                      const char *name,
                                                      bool value);

/**
 * Sets a property by its name of RFC 9622 to a `neater_preference`.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_set_preference(struct neater_transport_properties *properties,
                                                         const char *name,
                                                         int32_t value);

/**
 * Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
 * zero byte behind it. Returns how long all of it is without that byte, or a negative status.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_transport_properties_get_text(struct neater_transport_properties *properties,
                                             const char *name,
                                             char *buffer,
                                             size_t room);

/**
 * Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
 * second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_get_number(struct neater_transport_properties *properties,
                                                     const char *name,
                                                     double *value);

/**
 * Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
 * if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_get_boolean(struct neater_transport_properties *properties,
                                                      const char *name,
                                                      bool *value);

/**
 * Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
 * NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_transport_properties_get_preference(struct neater_transport_properties *properties,
                                                         const char *name,
                                                         int32_t *value);

/**
 * Makes the default (`NewSecurityParameters`), into `*security`: encrypted with TLS 1.2 or better,
 * and the peer authenticated by the system's authorities.
 *
 * Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
 */
neater_status neater_security_parameters_new(struct neater_security_parameters **security);

/**
 * Makes parameters without any security (`NewDisabledSecurityParameters`), into `*security`:
 * connections are in the clear.
 *
 * Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
 */
neater_status neater_security_parameters_new_disabled(struct neater_security_parameters **security);

/**
 * Makes parameters with which security is tried and not insisted on
 * (`NewOpportunisticSecurityParameters`), into `*security`.
 *
 * Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
 */
neater_status neater_security_parameters_new_opportunistic(struct neater_security_parameters **security);

/**
 * Makes parameters for trying things out, into `*security`: a server shows a certificate of its
 * own making for `names` (DNS names or addresses, separated by commas), and clients with the same
 * parameters trust it alone. It is valid for a year.
 *
 * Ownership: the caller's, to be given back by `neater_security_parameters_free`. Thread: any.
 */
neater_status neater_security_parameters_new_self_signed(const char *names,
                                                         struct neater_security_parameters **security);

/**
 * Copies parameters, into `*copy`.
 *
 * Ownership: the copy is the caller's, to be given back by `neater_security_parameters_free`.
 * Thread: one at a time for an object.
 */
neater_status neater_security_parameters_clone(const struct neater_security_parameters *security,
                                               struct neater_security_parameters **copy);

/**
 * Gives parameters back. NULL is allowed. What was made with them is not affected.
 *
 * Ownership: they are gone afterwards. Thread: any.
 */
void neater_security_parameters_free(struct neater_security_parameters *security);

/**
 * Adds a certificate to show as a server (`serverCertificate`): a chain, end entity first, and its
 * private key, both as PEM text (RFC 7468). Of several, the client's name and abilities decide.
 * NULL as key: it is elsewhere, and the callback for challenges signs
 * (`neater_security_parameters_set_challenge_callback`).
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_add_server_certificate(struct neater_security_parameters *security,
                                                                const char *chain_pem,
                                                                const char *key_pem);

/**
 * Adds a certificate to show as a client if the server asks (`clientCertificate`), as the function
 * for servers does.
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_add_client_certificate(struct neater_security_parameters *security,
                                                                const char *chain_pem,
                                                                const char *key_pem);

/**
 * The certificates that are trusted, or shown as a server, as PEM text with a zero byte behind it,
 * as far as it fits into `room` bytes: for the clients of a server with a certificate of its own
 * making. Returns how long all of it is, or a negative status.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_security_parameters_get_certificate(const struct neater_security_parameters *security,
                                                   char *buffer,
                                                   size_t room);

/**
 * Trusts authorities: those of this PEM text, and with `system` those of the system, too.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_set_trusted(struct neater_security_parameters *security,
                                                     const char *authorities_pem,
                                                     bool system);

/**
 * Adds a pin (`pinnedServerCertificate`): the SHA-256 of the server's certificate in DER, 32
 * bytes. The certificate must be one of those pinned, besides being trusted; with `alone`, it need
 * not be trusted otherwise, and names and dates are not looked at.
 *
 * Ownership: the bytes are copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_add_pin(struct neater_security_parameters *security,
                                                 const void *sha256,
                                                 bool alone);

/**
 * Sets whether a server asks its clients for a certificate: 0, it does not; 1, it asks and serves
 * those without one, too; 2, those without one are refused.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_security_parameters_set_client_authentication(struct neater_security_parameters *security,
                                                                   uint32_t mode);

/**
 * Sets a security parameter by its name of RFC 9622 section 6.3 from a text:
 *
 * - `allowedSecurityProtocols`: `TLS 1.2`, `TLS 1.3`, or both with a comma between them;
 * - `alpn`: application protocols, preferred first, separated by commas;
 * - `ciphersuite`, `supportedGroup`, `signatureAlgorithm`: names of IANA's registries, preferred
 *   first, separated by commas;
 * - `maxCachedSessions`, `cachedSessionLifetimeSeconds`: a number;
 * - `serverName` (ours): the name to ask for and to find in the certificate, instead of the one
 *   connected to;
 * - `earlyData` (ours): `true` or `false`, whether data may travel before the handshake is done.
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_set_text(struct neater_security_parameters *security,
                                                  const char *name,
                                                  const char *value);

/**
 * Sets a key agreed upon beforehand (`preSharedKey`) and its name. The TLS of this library has no
 * external pre-shared keys: every use of the parameters fails then with
 * NEATER_ERROR_INVALID_CONFIGURATION, so that the key cannot be mistaken for protection.
 *
 * Ownership: both are copied. Thread: one at a time for an object.
 */
neater_status neater_security_parameters_set_pre_shared_key(struct neater_security_parameters *security,
                                                            const void *key,
                                                            size_t key_length,
                                                            const char *identity);

/**
 * Has the program judge the peer's certificates, after every other check; with `alone` nothing
 * else is looked at. NULL takes the callback away.
 *
 * Lifetime: `user` must live as long as any object that was made with the parameters. Thread: one
 * at a time for an object; the callback comes from any thread that drives.
 */
neater_status neater_security_parameters_set_trust_callback(struct neater_security_parameters *security,
                                                            neater_trust_fn callback,
                                                            void *user,
                                                            bool alone);

/**
 * Whether security is required (0), tried (1) or off (2). Negative: an error.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_security_parameters_protection(const struct neater_security_parameters *security);

/**
 * Has the program asked before anything is signed with a private key, which it may refuse, or do
 * itself: a certificate that was added without its key needs that. NULL takes the callback away.
 *
 * Lifetime: `user` must live as long as any object that was made with the parameters. Thread: one
 * at a time for an object; the callback comes from any thread that drives.
 */
neater_status neater_security_parameters_set_challenge_callback(struct neater_security_parameters *security,
                                                                neater_challenge_fn callback,
                                                                void *user);

/**
 * Makes a context that sets nothing (`NewMessageContext`), into `*context`: each property is what
 * it is by default for the connection that the message is sent on.
 *
 * Ownership: the caller's, to be given back by `neater_message_context_free`. Thread: any.
 */
neater_status neater_message_context_new(struct neater_message_context **context);

/**
 * Gives a context back. NULL is allowed. Messages that were sent with it are not affected.
 *
 * Ownership: it is gone afterwards. Thread: any.
 */
void neater_message_context_free(struct neater_message_context *context);

/**
 * Names the stream of an SCTP association that messages go on, where the peer is not one of
 * neater's and one connection is the whole association. Elsewhere it means nothing.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_set_stream(struct neater_message_context *context, uint16_t stream);

/**
 * Names the payload protocol identifier that such a peer is given (RFC 9260 section 3.3.1).
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_set_payload_protocol(struct neater_message_context *context,
                                                          uint32_t identifier);

/**
 * Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
 * `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
 * matter.
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_message_context_set_text(struct neater_message_context *context,
                                              const char *name,
                                              const char *value);

/**
 * Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
 * second.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_set_number(struct neater_message_context *context,
                                                const char *name,
                                                double value);

/**
 * Sets a property by its name of RFC 9622 to a Boolean.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_set_boolean(struct neater_message_context *context,
                                                 const char *name,
                                                 bool value);

/**
 * Sets a property by its name of RFC 9622 to a `neater_preference`.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_set_preference(struct neater_message_context *context,
                                                    const char *name,
                                                    int32_t value);

/**
 * Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
 * zero byte behind it. Returns how long all of it is without that byte, or a negative status.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_message_context_get_text(struct neater_message_context *context,
                                        const char *name,
                                        char *buffer,
                                        size_t room);

/**
 * Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
 * second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_get_number(struct neater_message_context *context,
                                                const char *name,
                                                double *value);

/**
 * Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
 * if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_get_boolean(struct neater_message_context *context,
                                                 const char *name,
                                                 bool *value);

/**
 * Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
 * NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_message_context_get_preference(struct neater_message_context *context,
                                                    const char *name,
                                                    int32_t *value);

/**
 * The bytes of a message. NULL only for NULL.
 *
 * Lifetime: as long as the message; they do not change. Thread: any, but not while the message is
 * given back.
 */
const void *neater_message_data(const struct neater_message *message);

/**
 * How many bytes a message has. 0 for NULL.
 *
 * Thread: any, but not while the message is given back.
 */
size_t neater_message_length(const struct neater_message *message);

/**
 * What is known of a received message, into `*info`, whose `size` the program has set.
 *
 * Thread: any, but not while the message is given back.
 */
neater_status neater_message_get_info(const struct neater_message *message, struct neater_message_info *info);

/**
 * Gives a message back. NULL is allowed.
 *
 * Ownership: the message is gone afterwards, and so are its bytes. Thread: any.
 */
void neater_message_free(struct neater_message *message);

/**
 * Makes a preconnection without endpoints and with the defaults of RFC 9622 (`NewPreconnection`),
 * into `*preconnection`. Security is on unless it is switched off.
 *
 * Ownership: the caller's, to be given back by `neater_preconnection_free`. Thread: any.
 */
neater_status neater_preconnection_new(struct neater_context *context,
                                       struct neater_preconnection **preconnection);

/**
 * Gives a preconnection back. NULL is allowed. What was made from it goes on.
 *
 * Ownership: it is gone afterwards. Thread: any; also after the context was given back.
 */
void neater_preconnection_free(struct neater_preconnection *preconnection);

/**
 * Adds a remote endpoint. Several offer the same service, and any may be chosen.
 *
 * Ownership: the endpoint is copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_add_remote(struct neater_preconnection *preconnection,
                                              const struct neater_remote_endpoint *endpoint);

/**
 * Adds a remote endpoint that a text names: `host:port`, `192.0.2.1:443` or `[2001:db8::1]:443`.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_add_remote_text(struct neater_preconnection *preconnection,
                                                   const char *host_and_port);

/**
 * Adds a local endpoint.
 *
 * Ownership: the endpoint is copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_add_local(struct neater_preconnection *preconnection,
                                             const struct neater_local_endpoint *endpoint);

/**
 * Sets what is asked of the transport.
 *
 * Ownership: the properties are copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_properties(struct neater_preconnection *preconnection,
                                                  const struct neater_transport_properties *properties);

/**
 * Sets what is asked in words: `"reliable, low-delay, tls13"`. Words about security count, too:
 * without `neater_preconnection_set_security` they decide alone.
 *
 * Ownership: the text is copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_needs(struct neater_preconnection *preconnection, const char *words);

/**
 * Sets what is asked of security.
 *
 * Ownership: the parameters are copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_security(struct neater_preconnection *preconnection,
                                                const struct neater_security_parameters *security);

/**
 * Sets how messages are framed over byte streams (`AddFramer`): a `neater_framer`, and the longest
 * message accepted, in bytes. Without one, protocols that keep messages apart and those that join
 * them are not candidates of one connection.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_framer(struct neater_preconnection *preconnection,
                                              uint32_t framer,
                                              uint64_t longest);

/**
 * Lets only these stacks (`neater_stack`) serve, whatever the properties are; none: all. For
 * diagnosis and experiments: a program that names protocols gives up what this library is for.
 *
 * Ownership: the numbers are copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_stacks(struct neater_preconnection *preconnection,
                                              const uint32_t *stacks,
                                              size_t count);

/**
 * Sets a property beyond those of RFC 9622 for policies to look at, such as `profile` and
 * `flow_size`; the value is a text, or a number or Boolean where it reads as one.
 *
 * Ownership: both texts are copied. Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_policy_property(struct neater_preconnection *preconnection,
                                                       const char *name,
                                                       const char *value);

/**
 * Sets how long establishment may take in all, in milliseconds.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_preconnection_set_timeout(struct neater_preconnection *preconnection,
                                               uint64_t milliseconds);

/**
 * Sets the user and the callback that connections and listeners made from this have from the
 * first, and connections that these listeners receive. NULL: events go to the context's callback
 * or to `neater_poll_event`.
 *
 * Lifetime: `user` must live as long as any of them is not given back. Thread: one at a time for
 * an object.
 */
neater_status neater_preconnection_set_callback(struct neater_preconnection *preconnection,
                                                neater_event_fn callback,
                                                void *user);

/**
 * Checks what was asked for a role (`neater_role`), and compiles it for all that are made from
 * this later. Sends nothing.
 *
 * Thread: one at a time for an object.
 */
neater_status neater_preconnection_compile(struct neater_preconnection *preconnection, uint32_t as_role);

/**
 * The stacks that may serve for a role (`neater_role`) by their number, best first, as
 * `neater_stack`. NEATER_ERROR_NOT_FOUND beyond the last.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_preconnection_stack(struct neater_preconnection *preconnection,
                                   uint32_t as_role,
                                   size_t index);

/**
 * Why candidates stand where they do for a role (`neater_role`): what was asked, what the ranking
 * is made of, what is ruled out, and with `remote`, which may be NULL, what policies do to
 * connections to it, with file and line. Lines of text, as far as they fit into `room` bytes with
 * a zero byte behind them. Returns how long all of it is without that byte, or a negative status.
 * Nothing is sent.
 *
 * Thread: one at a time for an object.
 */
int64_t neater_preconnection_explain(struct neater_preconnection *preconnection,
                                     uint32_t as_role,
                                     const struct neater_remote_endpoint *remote,
                                     char *buffer,
                                     size_t room);

/**
 * Opens a connection (`Initiate`), into `*connection`. Establishment begins at once, and
 * NEATER_EVENT_READY or NEATER_EVENT_ESTABLISHMENT_ERROR follows; messages may be sent and
 * receives asked for before that.
 *
 * What can be known before anything is sent is answered at once:
 * NEATER_ERROR_INVALID_CONFIGURATION, NEATER_ERROR_NO_CANDIDATES, NEATER_ERROR_PROHIBITED and
 * others; `neater_last_error` has the candidates then.
 *
 * Ownership: the caller's, to be given back by `neater_connection_free`. Thread: one at a time for
 * a preconnection.
 */
neater_status neater_preconnection_initiate(struct neater_preconnection *preconnection,
                                            struct neater_connection **connection);

/**
 * Opens a connection and hands it its first message (`InitiateWithSend`, RFC 9622 section 9.2.5),
 * whose number is 1. If the context has it as safely replayable, it may travel with the
 * handshake (0-RTT) and arrive more than once. NULL context: no property.
 *
 * Ownership: the connection is the caller's, to be given back by `neater_connection_free`; the
 * bytes are copied. Thread: one at a time for a preconnection.
 */
neater_status neater_preconnection_initiate_with_send(struct neater_preconnection *preconnection,
                                                      const void *data,
                                                      size_t length,
                                                      const struct neater_message_context *context,
                                                      struct neater_connection **connection);

/**
 * Listens (`Listen`) with every eligible protocol on every local endpoint, into `*listener`.
 * NEATER_EVENT_CONNECTION_RECEIVED follows for each connection.
 *
 * Ownership: the caller's, to be given back by `neater_listener_free`. Thread: one at a time for a
 * preconnection.
 */
neater_status neater_preconnection_listen(struct neater_preconnection *preconnection,
                                          struct neater_listener **listener);

/**
 * Opens a connection to a peer that opens one to this side at the same time (`Rendezvous`, RFC
 * 9622 section 7.3). The engine has no way through NATs yet: NEATER_ERROR_UNSUPPORTED, after
 * endpoints and properties were checked, and `*connection` is NULL.
 *
 * Thread: one at a time for a preconnection.
 */
neater_status neater_preconnection_rendezvous(struct neater_preconnection *preconnection,
                                              struct neater_connection **connection);

/**
 * Finds out what `neater_preconnection_initiate` would try at this moment, in which order and
 * when, if no peer ever answered. NEATER_EVENT_PLANNED or NEATER_EVENT_PLAN_ERROR follows, with
 * `user`, at the context. Names are asked for; nothing is sent to a peer.
 *
 * Lifetime: `user` is the program's; the library never looks behind it. Thread: one at a time for
 * a preconnection.
 */
neater_status neater_preconnection_plan(struct neater_preconnection *preconnection, void *user);

/**
 * Gives a connection back. NULL is allowed. It closes in order: what was sent is still delivered
 * while the context is driven, but no event of the connection comes any more.
 * `neater_connection_abort` before this ends it at once.
 *
 * Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
 * the context was given back.
 */
void neater_connection_free(struct neater_connection *connection);

/**
 * Sets what events of the connection have as `user`.
 *
 * Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
 */
neater_status neater_connection_set_user(struct neater_connection *connection, void *user);

/**
 * What events of the connection have as `user`; NULL for NULL.
 *
 * Thread: any.
 */
void *neater_connection_get_user(const struct neater_connection *connection);

/**
 * Has the connection's events delivered to a function instead of `neater_poll_event`. NULL takes
 * it away.
 *
 * Lifetime: `user` must live as long as the connection is not given back. Thread: any; the
 * function is called from the thread that drives.
 */
neater_status neater_connection_set_callback(struct neater_connection *connection,
                                             neater_event_fn callback,
                                             void *user);

/**
 * Sends a message (`Send`). From NEATER_OK on it is delivered, or reported as expired or unsent;
 * NEATER_EVENT_SENT reports that the transport has it. NEATER_ERROR_BLOCKED: there is no room,
 * nothing was taken, and NEATER_EVENT_WRITABLE follows. `context` has the message's properties;
 * NULL: those of the connection. `message_id` receives the number that events have; NULL is
 * allowed.
 *
 * While the connection is being established messages wait.
 *
 * Ownership: the bytes are copied. Thread: any.
 */
neater_status neater_connection_send(struct neater_connection *connection,
                                     const void *data,
                                     size_t length,
                                     const struct neater_message_context *context,
                                     uint64_t *message_id);

/**
 * Sends a part of a message (RFC 9622 section 9.2.3), as `neater_connection_send` does. Parts
 * belong together until one has `end_of_message`; until then no other message can be sent where
 * messages have boundaries. Datagrams cannot be sent in parts.
 *
 * Ownership: the bytes are copied. Thread: any.
 */
neater_status neater_connection_send_partial(struct neater_connection *connection,
                                             const void *data,
                                             size_t length,
                                             bool end_of_message,
                                             const struct neater_message_context *context,
                                             uint64_t *message_id);

/**
 * Sends a message without copying it, as `neater_connection_send` does otherwise. `release` is
 * called when the bytes are needed no more, also after an error, but for
 * NEATER_ERROR_INVALID_ARGUMENT, NEATER_ERROR_REENTRANT and NEATER_ERROR_BLOCKED, after which they
 * are the program's still.
 *
 * Ownership: the bytes are the library's, unchanged, until `release` is called. Thread: any.
 */
neater_status neater_connection_send_owned(struct neater_connection *connection,
                                           const void *data,
                                           size_t length,
                                           neater_release_fn release,
                                           void *user,
                                           const struct neater_message_context *context,
                                           uint64_t *message_id);

/**
 * Hints that several sends follow, which may be put together (`StartBatch`).
 *
 * Thread: any.
 */
neater_status neater_connection_start_batch(struct neater_connection *connection);

/**
 * The batch is complete (`EndBatch`): it is sent.
 *
 * Thread: any.
 */
neater_status neater_connection_end_batch(struct neater_connection *connection);

/**
 * Asks for the next message (`Receive`). Each call is answered by exactly one event:
 * NEATER_EVENT_RECEIVED, NEATER_EVENT_RECEIVED_PARTIAL, NEATER_EVENT_RECEIVE_END or
 * NEATER_EVENT_RECEIVE_ERROR, in the order of the calls. Several may wait, 65,536 at most. Without
 * a receive nothing is delivered, and the peer is slowed down where the protocol can. It may be
 * called before the connection is established, and after its end for what has arrived until then.
 * NULL options are the defaults.
 *
 * Ownership: the message belongs to the event. Thread: any.
 */
neater_status neater_connection_receive(struct neater_connection *connection,
                                        const struct neater_receive_options *options);

/**
 * Ends this side's direction: what was sent is delivered, and the peer sees the end (half-close).
 * Receiving goes on.
 *
 * Thread: any.
 */
neater_status neater_connection_finish(struct neater_connection *connection);

/**
 * Closes the connection (`Close`): what was sent is delivered, and NEATER_EVENT_CLOSED or
 * NEATER_EVENT_CONNECTION_ERROR follows.
 *
 * Thread: any. The object stays, and is given back by `neater_connection_free`.
 */
neater_status neater_connection_close(struct neater_connection *connection);

/**
 * Ends the connection at once (`Abort`), with an application error code where the protocol has
 * them (QUIC). Nothing more is delivered; NEATER_EVENT_CONNECTION_ERROR with NEATER_ERROR_ABORTED
 * follows.
 *
 * Thread: any. The object stays, and is given back by `neater_connection_free`.
 */
neater_status neater_connection_abort(struct neater_connection *connection, uint64_t code);

/**
 * Abandons the sending direction, with an application error code where the protocol has them
 * (QUIC, SCTP). TCP and TLS cannot: there the connection is aborted, unless all was sent.
 *
 * Thread: any.
 */
neater_status neater_connection_reset_sending(struct neater_connection *connection, uint64_t code);

/**
 * Refuses what the peer may still send, with an application error code where the protocol has them
 * (QUIC).
 *
 * Thread: any.
 */
neater_status neater_connection_stop_receiving(struct neater_connection *connection, uint64_t code);

/**
 * Adds a connection to this one's group (`Clone`), into `*clone`: a stream where the transport has
 * them, another transport connection otherwise. NEATER_EVENT_READY follows. With `one_way` only
 * this side sends on it. It has the user and the callback of the first.
 *
 * Ownership: the clone is the caller's, to be given back by `neater_connection_free`. Thread: any.
 */
neater_status neater_connection_clone(struct neater_connection *connection,
                                      bool one_way,
                                      struct neater_connection **clone);

/**
 * The group of the connection, into `*group`. While the object is kept, streams that the peer
 * opens come to it as NEATER_EVENT_CONNECTION_RECEIVED.
 *
 * Ownership: the caller's, to be given back by `neater_group_free`. Thread: any.
 */
neater_status neater_connection_group(struct neater_connection *connection, struct neater_group **group);

/**
 * Adds or removes (`neater_endpoint_change`) an address of the peer's, as text with its port below
 * the transport: `192.0.2.1:9899` (RFC 9622 section 7.5).
 *
 * Ownership: the text is copied. Thread: any.
 */
neater_status neater_connection_change_remote(struct neater_connection *connection,
                                              uint32_t change,
                                              const char *address);

/**
 * Adds or removes (`neater_endpoint_change`) an address or interface of this host (RFC 9622
 * section 7.5).
 *
 * Ownership: the endpoint is copied. Thread: any for the connection, one at a time for the
 * endpoint.
 */
neater_status neater_connection_change_local(struct neater_connection *connection,
                                             uint32_t change,
                                             const struct neater_local_endpoint *endpoint);

/**
 * Reports how the connection served (`neater_service_outcome`): later connections to the same
 * endpoint try other candidates first after a report against it. The connection goes on.
 *
 * Thread: any.
 */
neater_status neater_connection_report(struct neater_connection *connection, uint32_t outcome);

/**
 * How establishment went, into `*race`: every candidate and every step. Empty lists where the
 * outcome of an earlier race was used, and for connections that were accepted.
 *
 * Ownership: the caller's, to be given back by `neater_race_free`. Thread: any.
 */
neater_status neater_connection_race(const struct neater_connection *connection, struct neater_race **race);

/**
 * The protocol that carries the connection, a `neater_stack`; NEATER_STACK_NONE while none is
 * chosen.
 *
 * Thread: any.
 */
uint32_t neater_connection_stack(const struct neater_connection *connection);

/**
 * Sets a property by its name of RFC 9622 from a text: `require`, `true`, `interactive`, `1.5`,
 * `250ms`, `prefer:wifi+avoid:cellular`. Case, and separators where the name has capitals, do not
 * matter.
 *
 * Ownership: both texts are copied. Thread: any.
 */
neater_status neater_connection_set_text(struct neater_connection *connection,
                                         const char *name,
                                         const char *value);

/**
 * Sets a property by its name of RFC 9622 to a number: durations are in seconds, rates in bits per
 * second.
 *
 * Thread: any.
 */
neater_status neater_connection_set_number(struct neater_connection *connection,
                                           const char *name,
                                           double value);

/**
 * Sets a property by its name of RFC 9622 to a Boolean.
 *
 * Thread: any.
 */
neater_status neater_connection_set_boolean(struct neater_connection *connection,
                                            const char *name,
                                            bool value);

/**
 * Sets a property by its name of RFC 9622 to a `neater_preference`.
 *
 * Thread: any.
 */
neater_status neater_connection_set_preference(struct neater_connection *connection,
                                               const char *name,
                                               int32_t value);

/**
 * Reads a property by its name of RFC 9622 as text, as far as it fits into `room` bytes with a
 * zero byte behind it. Returns how long all of it is without that byte, or a negative status.
 *
 * Thread: any.
 */
int64_t neater_connection_get_text(struct neater_connection *connection,
                                   const char *name,
                                   char *buffer,
                                   size_t room);

/**
 * Reads a property by its name of RFC 9622 as a number: durations in seconds, rates in bits per
 * second, into `*value`. NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: any.
 */
neater_status neater_connection_get_number(struct neater_connection *connection,
                                           const char *name,
                                           double *value);

/**
 * Reads a property by its name of RFC 9622 as a Boolean, into `*value`. NEATER_ERROR_INVALID_VALUE
 * if it is none.
 *
 * Thread: any.
 */
neater_status neater_connection_get_boolean(struct neater_connection *connection,
                                            const char *name,
                                            bool *value);

/**
 * Reads a property by its name of RFC 9622 as a `neater_preference`, into `*value`.
 * NEATER_ERROR_INVALID_VALUE if it is none.
 *
 * Thread: any.
 */
neater_status neater_connection_get_preference(struct neater_connection *connection,
                                               const char *name,
                                               int32_t *value);

/**
 * The state of the connection: a `neater_connection_state`. Negative: an error.
 *
 * Thread: any.
 */
int64_t neater_connection_get_state(const struct neater_connection *connection);

/**
 * A text that is known of the connection (`neater_connection_text_kind`), as far as it fits into
 * `room` bytes with a zero byte behind it; empty while it is not known. Returns how long all of it
 * is without that byte, or a negative status.
 *
 * Thread: any.
 */
int64_t neater_connection_text(const struct neater_connection *connection,
                               uint32_t kind,
                               char *buffer,
                               size_t room);

/**
 * A certificate of the peer's by its number, end entity first, in DER, as far as it fits into
 * `room` bytes. Returns how long it is, or NEATER_ERROR_NOT_FOUND beyond the last.
 *
 * Thread: any.
 */
int64_t neater_connection_peer_certificate(const struct neater_connection *connection,
                                           size_t index,
                                           void *buffer,
                                           size_t room);

/**
 * The number of the stream on the wire, where the connection is a stream of QUIC; else
 * NEATER_ERROR_NOT_FOUND.
 *
 * Thread: any.
 */
int64_t neater_connection_stream_number(const struct neater_connection *connection);

/**
 * A path of the connection's transport by its number, into `*path`, whose `size` the program has
 * set. NEATER_ERROR_NOT_FOUND beyond the last. NEATER_EVENT_PATH_CHANGE reports that something
 * about them has changed.
 *
 * Thread: any.
 */
neater_status neater_connection_path(const struct neater_connection *connection,
                                     size_t index,
                                     struct neater_path *path);

/**
 * Figures of the connection, into `*statistics`, whose `size` the program has set.
 * NEATER_ERROR_STATE when there are none.
 *
 * Thread: any.
 */
neater_status neater_connection_get_statistics(const struct neater_connection *connection,
                                               struct neater_connection_statistics *statistics);

/**
 * Whether the connection is, or was, established: `neater_connection_send` does not wait for it
 * any more.
 *
 * Thread: any.
 */
bool neater_connection_is_established(const struct neater_connection *connection);

/**
 * Gives a listener back. NULL is allowed. It stops listening; connections that were taken go on,
 * others are closed. No event of it comes any more.
 *
 * Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
 * the context was given back.
 */
void neater_listener_free(struct neater_listener *listener);

/**
 * Stops listening (`Stop`). What was received before is still delivered, then
 * NEATER_EVENT_STOPPED.
 *
 * Thread: any. The object stays, and is given back by `neater_listener_free`.
 */
neater_status neater_listener_stop(struct neater_listener *listener);

/**
 * Sets what events of the listener, and connections that it receives from now on, have as `user`.
 *
 * Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
 */
neater_status neater_listener_set_user(struct neater_listener *listener, void *user);

/**
 * Has the listener's events delivered to a function instead of `neater_poll_event`. NULL takes it
 * away. Its connections have the callback of their preconnection, or one of their own.
 *
 * Lifetime: `user` must live as long as the listener is not given back. Thread: any; the function
 * is called from the thread that drives.
 */
neater_status neater_listener_set_callback(struct neater_listener *listener,
                                           neater_event_fn callback,
                                           void *user);

/**
 * Sets how many connections may still be received (`SetNewConnectionLimit`); UINT64_MAX: any
 * number.
 *
 * Thread: any.
 */
neater_status neater_listener_set_new_connection_limit(struct neater_listener *listener, uint64_t limit);

/**
 * Where the transport has streams, delivers groups (NEATER_EVENT_GROUP_RECEIVED) instead of a
 * connection for every stream.
 *
 * Thread: any.
 */
neater_status neater_listener_deliver_groups(struct neater_listener *listener, bool groups);

/**
 * The port that all protocols share; 0 if it does not listen any more.
 *
 * Thread: any.
 */
uint16_t neater_listener_port(const struct neater_listener *listener);

/**
 * The first UDP port at which SCTP is taken (RFC 6951); 0 if it is not.
 *
 * Thread: any.
 */
uint16_t neater_listener_udp_port(const struct neater_listener *listener);

/**
 * Where the listener listens and with what, by its number, into `*listening`, whose `size` the
 * program has set. NEATER_ERROR_NOT_FOUND beyond the last.
 *
 * Thread: any.
 */
neater_status neater_listener_address(const struct neater_listener *listener,
                                      size_t index,
                                      struct neater_listening *listening);

/**
 * How many addresses `neater_listener_address` has. Negative: an error.
 *
 * Thread: any.
 */
int64_t neater_listener_address_count(const struct neater_listener *listener);

/**
 * Gives a group back. NULL is allowed. Its connections go on; streams that the peer opens
 * afterwards come where they came before.
 *
 * Ownership: the object is gone afterwards. Thread: any; also from within a callback, and after
 * the context was given back.
 */
void neater_group_free(struct neater_group *group);

/**
 * Sets what events of the group, and connections that it receives from now on, have as `user`.
 *
 * Lifetime: the pointer is the program's; the library never looks behind it. Thread: any.
 */
neater_status neater_group_set_user(struct neater_group *group, void *user);

/**
 * Has the events of the group, and of the connections that it receives from now on, delivered to a
 * function instead of `neater_poll_event`. NULL takes it away.
 *
 * Lifetime: `user` must live as long as the group and these connections are not given back.
 * Thread: any; the function is called from the thread that drives.
 */
neater_status neater_group_set_callback(struct neater_group *group, neater_event_fn callback, void *user);

/**
 * Opens a stream in the group, into `*connection`; with `one_way` only this side sends on it.
 *
 * Ownership: the connection is the caller's, to be given back by `neater_connection_free`. Thread:
 * any.
 */
neater_status neater_group_open(struct neater_group *group,
                                bool one_way,
                                struct neater_connection **connection);

/**
 * How many connections the group has. Negative: an error.
 *
 * Thread: any.
 */
int64_t neater_group_count(const struct neater_group *group);

/**
 * Whether the group lives on a transport with streams.
 *
 * Thread: any.
 */
bool neater_group_has_streams(const struct neater_group *group);

/**
 * The protocol that carries the group, a `neater_stack`; NEATER_STACK_NONE when it is gone.
 *
 * Thread: any.
 */
uint32_t neater_group_stack(const struct neater_group *group);

/**
 * Closes all connections of the group in order, then their session (`CloseGroup`).
 *
 * Thread: any.
 */
neater_status neater_group_close(struct neater_group *group);

/**
 * Aborts all connections of the group (`AbortGroup`).
 *
 * Thread: any.
 */
neater_status neater_group_abort(struct neater_group *group);

/**
 * Ends the session of the group at once, with an application error code and a few words for the
 * peer, where the protocol has them (QUIC, SCTP). 256 bytes of them at most reach a peer.
 *
 * Ownership: the bytes are copied. Thread: any.
 */
neater_status neater_group_close_session(struct neater_group *group,
                                         uint64_t code,
                                         const void *reason,
                                         size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NEATER_H */
