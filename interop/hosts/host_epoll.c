/* epoll(7) around the engine's descriptor: "level", "edge" or "oneshot", by the third argument. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "scenario.h"

int main(int argc, char **argv) {
    const char *mode = argc > 3 ? argv[3] : "level";
    uint32_t trigger = !strcmp(mode, "edge") ? EPOLLET : !strcmp(mode, "oneshot") ? EPOLLONESHOT : 0;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    scenario_begin(argc, argv);
    struct epoll_event event = {.events = EPOLLIN | trigger};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, scenario_fd(), &event)) abort();
    uint64_t wakeups = 0;
    for (;;) {
        struct epoll_event got;
        if (epoll_wait(epoll, &got, 1, -1) != 1) continue;
        wakeups++;
        if (scenario_ready()) break;
        event.events = EPOLLIN | trigger;
        if (trigger == EPOLLONESHOT && epoll_ctl(epoll, EPOLL_CTL_MOD, scenario_fd(), &event)) abort();
    }
    epoll_ctl(epoll, EPOLL_CTL_DEL, scenario_fd(), NULL);
    scenario_end(wakeups);
}
