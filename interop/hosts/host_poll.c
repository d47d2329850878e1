/* The barest loop there is: poll(2) on one descriptor, without a timeout. */
#include <poll.h>

#include "scenario.h"

int main(int argc, char **argv) {
    scenario_begin(argc, argv);
    struct pollfd fd = {.fd = scenario_fd(), .events = POLLIN};
    uint64_t wakeups = 0;
    do {
        if (poll(&fd, 1, -1) == 1) wakeups++;
    } while (!(fd.revents & POLLIN) || !scenario_ready());
    scenario_end(wakeups);
}
