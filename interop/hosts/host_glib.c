/* GLib: a main loop with g_unix_fd_add on the engine's descriptor. */
#include <glib-unix.h>

#include "scenario.h"

static guint64 wakeups;

static gboolean ready(gint fd, GIOCondition condition, gpointer loop) {
    (void)fd;
    wakeups++;
    if (!(condition & G_IO_IN)) g_error("woken for something else: %d", condition);
    if (!scenario_ready()) return G_SOURCE_CONTINUE;
    g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

int main(int argc, char **argv) {
    GMainLoop *loop = g_main_loop_new(NULL, FALSE);
    scenario_begin(argc, argv);
    g_unix_fd_add(scenario_fd(), G_IO_IN, ready, loop);
    g_main_loop_run(loop);
    g_main_loop_unref(loop);
    scenario_end(wakeups);
}
