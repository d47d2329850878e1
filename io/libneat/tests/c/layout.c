/* The layouts and numbers that NEAT 1.0.9 has on machines with pointers of 64 bits. Also compiled as C++. */
#ifndef BARE
#include <assert.h>
#endif
#include <neat.h>
#include <stdio.h>

#define CHECK(what) ((what) ? (void)0 : (void)(printf("wrong: %s\n", #what), bad = 1))
#define AT(member, n) CHECK(offsetof(struct neat_flow_operations, member) == (n))

int main(void)
{
    int bad = 0;
    NEAT_OPTARGS_DECLARE(NEAT_OPTARGS_MAX);
    NEAT_OPTARGS_INIT();
    CHECK(sizeof(struct neat_flow_operations) == 176);
    CHECK(sizeof(struct neat_tlv) == 16);
    AT(preconnection_id, 0);
    AT(clone_id, 16);
    AT(userData, 24);
    AT(status, 32);
    AT(stream_id, 40);
    AT(transport_protocol, 44);
    AT(on_connected, 48);
    AT(on_error, 56);
    AT(on_readable, 64);
    AT(on_writable, 72);
    AT(on_all_written, 80);
    AT(on_network_status_changed, 88);
    AT(on_aborted, 96);
    AT(on_timeout, 104);
    AT(on_close, 112);
    AT(on_parameters, 120);
    AT(on_send_failure, 128);
    AT(on_slowdown, 136);
    AT(on_rate_hint, 144);
    AT(label, 152);
    AT(ctx, 160);
    AT(flow, 168);
    CHECK(NEAT_TAG_PRIORITY == 13 && NEAT_TAG_TRANSPORT_STACK == 16 && NEAT_TAG_LAST == 18);
    CHECK(NEAT_STACK_UDP == 1 && NEAT_STACK_TCP == 3 && NEAT_STACK_SCTP == 5 && NEAT_STACK_WEBRTC == 7);
    CHECK(NEAT_ERROR_OUT_OF_MEMORY == 10 && NEAT_ERROR_DNS == 4 && NEAT_OK == 0 && NEAT_INVALID_STREAM == -1);
    CHECK(NEAT_RUN_NOWAIT == (neat_run_mode)UV_RUN_NOWAIT && NEAT_RUN_ONCE == (neat_run_mode)UV_RUN_ONCE);
    NEAT_OPTARG_INT(NEAT_TAG_STREAM_ID, 7);
    NEAT_OPTARG_FLOAT(NEAT_TAG_PRIORITY, 0.5f);
    NEAT_OPTARG_STRING(NEAT_TAG_CC_ALGORITHM, "cubic");
    CHECK(NEAT_OPTARGS_COUNT == 3);
    CHECK(NEAT_OPTARGS[0].value.integer == 7 && NEAT_OPTARGS[0].type == NEAT_TYPE_INTEGER);
    CHECK(NEAT_OPTARGS[2].value.string[0] == 'c' && NEAT_OPTARGS[2].tag == NEAT_TAG_CC_ALGORITHM);
    NEAT_OPTARGS_RESET();
    CHECK(NEAT_OPTARGS_COUNT == 0);
    printf(bad ? "layout: wrong\n" : "layout: as NEAT's\n");
    return bad;
}
