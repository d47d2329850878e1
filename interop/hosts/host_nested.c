/* Three deep: the application's epoll holds libuv's descriptor, libuv's epoll holds the engine's, and that is an epoll. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <uv.h>

#include "scenario.h"

static uint64_t wakeups;
static int done;

static void ready(uv_poll_t *poll, int status, int events) {
    if (status < 0 || !(events & UV_READABLE)) abort();
    if (scenario_ready()) {
        uv_close((uv_handle_t *)poll, NULL);
        done = 1;
    }
}

int main(int argc, char **argv) {
    uv_loop_t loop;
    uv_poll_t poll;
    int outer = epoll_create1(EPOLL_CLOEXEC);
    if (uv_loop_init(&loop)) abort();
    uv_run(&loop, UV_RUN_NOWAIT);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(outer, EPOLL_CTL_ADD, uv_backend_fd(&loop), &event)) abort();
    scenario_begin(argc, argv);
    if (uv_poll_init(&loop, &poll, scenario_fd()) || uv_poll_start(&poll, UV_READABLE, ready)) abort();
    /* libuv registers descriptors when it runs. */
    uv_run(&loop, UV_RUN_NOWAIT);
    while (!done) {
        struct epoll_event got;
        if (epoll_wait(outer, &got, 1, uv_backend_timeout(&loop)) != 1) continue;
        wakeups++;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    /* The loop stays open, so that descriptors can be counted; it must hold nothing. */
    if (uv_loop_alive(&loop)) abort();
    scenario_end(wakeups);
}
