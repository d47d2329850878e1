/* libuv: uv_poll on the engine's descriptor. */
#include <stdlib.h>
#include <uv.h>

#include "scenario.h"

static uint64_t wakeups;

static void ready(uv_poll_t *poll, int status, int events) {
    wakeups++;
    if (status < 0 || !(events & UV_READABLE)) abort();
    if (scenario_ready()) uv_close((uv_handle_t *)poll, NULL);
}

int main(int argc, char **argv) {
    uv_loop_t loop;
    uv_poll_t poll;
    if (uv_loop_init(&loop)) abort();
    /* What libuv opens when it first waits is not the engine's. */
    uv_run(&loop, UV_RUN_NOWAIT);
    scenario_begin(argc, argv);
    if (uv_poll_init(&loop, &poll, scenario_fd()) || uv_poll_start(&poll, UV_READABLE, ready)) abort();
    uv_run(&loop, UV_RUN_DEFAULT);
    /* The loop stays open, so that descriptors can be counted; it must hold nothing. */
    if (uv_loop_alive(&loop)) abort();
    scenario_end(wakeups);
}
