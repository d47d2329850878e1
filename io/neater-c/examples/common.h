/* What the examples share: an error ends the program with the words of the library. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <neater.h>

/* Prints the error of the last function that failed, and ends. */
static inline void check(neater_status status, const char *what)
{
    if (status != NEATER_OK) {
        fprintf(stderr, "%s: %s\n", what, neater_error_text(neater_last_error()));
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

/* Waits for the next event, ten seconds at most. */
static inline void next_event(neater_context *context, neater_event *event)
{
    int64_t n;
    memset(event, 0, sizeof *event);
    event->size = sizeof *event;
    n = neater_poll_event(context, event, 10000);
    if (n != 1) {
        fprintf(stderr, "no event: %s\n", n == 0 ? "nothing came for ten seconds" : neater_status_text((int32_t)n));
        exit(1);
    }
}

/* Ends the program if an event reports that the connection cannot be, or is no more. Errors of
 * single messages are printed: the reason may follow. */
static inline void check_event(const neater_event *event)
{
    switch (event->kind) {
    case NEATER_EVENT_SEND_ERROR:
    case NEATER_EVENT_ESTABLISHMENT_ERROR:
    case NEATER_EVENT_CONNECTION_ERROR:
    case NEATER_EVENT_LISTENER_ERROR:
        fprintf(stderr, "%s: %s\n", neater_event_name(event->kind),
                neater_error_text(event->data.error.error));
        if (event->kind != NEATER_EVENT_SEND_ERROR)
            exit(1);
        break;
    default:
        break;
    }
}

#endif
