/* Test functions over neater, for the programs in this folder. NOT the C API of neater: that is neater.h.
 * Results below 0 are errors. One thread at a time uses a handle. */
#ifndef NEATER_SHIM_H
#define NEATER_SHIM_H
#include <stddef.h>
#include <stdint.h>

#define NEATER_SHIM_AGAIN (-1)
#define NEATER_SHIM_FAILED (-2)
#define NEATER_SHIM_INVALID (-3)
#define NEATER_SHIM_PANIC (-4)

typedef struct NeaterShim NeaterShim;

NeaterShim *neater_shim_create(void);
int neater_shim_fd(NeaterShim *);
int64_t neater_shim_turn(NeaterShim *);
int64_t neater_shim_connect(NeaterShim *, const char *ip, uint16_t port, const char *other_ip, uint16_t other_port);
int64_t neater_shim_state(NeaterShim *, int64_t id);
int64_t neater_shim_send(NeaterShim *, int64_t id, const void *data, size_t len);
int64_t neater_shim_receive(NeaterShim *, int64_t id, void *data, size_t room);
int64_t neater_shim_finish(NeaterShim *, int64_t id);
int64_t neater_shim_close(NeaterShim *, int64_t id);
int64_t neater_shim_flood(NeaterShim *, uint32_t count);
int64_t neater_shim_flood_accepted(NeaterShim *);
int64_t neater_shim_flood_end(NeaterShim *);
int64_t neater_shim_send_from_thread(NeaterShim *, int64_t id, uint8_t byte, uint32_t delay_ms);
int64_t neater_shim_quic_from_thread(NeaterShim *, uint32_t bytes);
int64_t neater_shim_threads_done(NeaterShim *);
int64_t neater_shim_live(NeaterShim *);
int64_t neater_shim_release(NeaterShim *);
int64_t neater_shim_is_done(NeaterShim *);
void neater_shim_destroy(NeaterShim *);

#endif
