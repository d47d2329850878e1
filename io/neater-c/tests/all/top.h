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
