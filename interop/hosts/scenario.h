/* What every host loop in this folder makes an engine do. The loop watches one descriptor and calls scenario_ready()
 * whenever it is readable, and nothing else: no timer, no idle callback. */
#ifndef SCENARIO_H
#define SCENARIO_H
#include <stdint.h>

/* Reads "ECHO_PORT BLACK_HOLE_PORT" from the arguments, makes an engine and opens everything. */
void scenario_begin(int argc, char **argv);
/* The descriptor to watch for reading. */
int scenario_fd(void);
/* A turn of the engine and a look at what came of it. Returns 1 when the loop shall end. */
int scenario_ready(void);
/* Tells how it went, and exits. `wakeups`: how often the loop came round. */
_Noreturn void scenario_end(uint64_t wakeups);

#endif
