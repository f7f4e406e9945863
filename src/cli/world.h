/* What every command that runs on ranks has in common: its options, starting local ranks with
 * -n, joining the world that this process was started in, and leaving it. */
#ifndef RPI_CLI_WORLD_H
#define RPI_CLI_WORLD_H

#include "base/option.h"
#include "redpoll/comm.h"

#include <stddef.h>
#include <stdio.h>

typedef struct rpi_world_settings {
    int64_t ranks; /* -n: 0 when absent */
    const char *link, *transport, *bind_host;
    double timeout_s, warn_after_s, connect_timeout_s;
    int64_t chunk_bytes;
    /* Set by the command, not by options. */
    bool progress_thread;
    FILE *greeting; /* for "rank 2 of 4, found by torchrun"; NULL: not said */
} rpi_world_settings;

/* Checks that say what is wrong before any rank is started. */
rp_status rpi_world_check_link(const char *text);
rp_status rpi_world_check_transport(const char *text);

/* Rows of an option table, for a settings struct with an rpi_world_settings field. */
#define RPI_WORLD_OPTIONS(type, field)                                                         \
    {"ranks",                                                                                  \
     "n",                                                                                      \
     "parallelism.dp",                                                                         \
     RPI_OPTION_COUNT,                                                                         \
     offsetof(type, field.ranks),                                                              \
     NULL,                                                                                     \
     1,                                                                                        \
     65536,                                                                                    \
     "N",                                                                                      \
     "start N ranks on this machine",                                                          \
     NULL},                                                                                    \
        {"np",                                                                                 \
         NULL,                                                                                 \
         NULL,                                                                                 \
         RPI_OPTION_COUNT,                                                                     \
         offsetof(type, field.ranks),                                                          \
         NULL,                                                                                 \
         1,                                                                                    \
         65536,                                                                                \
         "N",                                                                                  \
         "the same as -n",                                                                     \
         NULL},                                                                                \
        {"link",                                                                               \
         NULL,                                                                                 \
         "network.link",                                                                       \
         RPI_OPTION_TEXT,                                                                      \
         offsetof(type, field.link),                                                           \
         NULL,                                                                                 \
         0,                                                                                    \
         0,                                                                                    \
         "RATE,LATENCY",                                                                       \
         "shape each rank's traffic, each way: 1Gbit,50us",                                    \
         rpi_world_check_link},                                                                \
        {"transport",                                                                          \
         NULL,                                                                                 \
         "network.transport",                                                                  \
         RPI_OPTION_TEXT,                                                                      \
         offsetof(type, field.transport),                                                      \
         "auto",                                                                               \
         0,                                                                                    \
         0,                                                                                    \
         "NAME",                                                                               \
         "auto, shm or tcp",                                                                   \
         rpi_world_check_transport},                                                           \
        {"bind",                                                                               \
         NULL,                                                                                 \
         "network.bind",                                                                       \
         RPI_OPTION_TEXT,                                                                      \
         offsetof(type, field.bind_host),                                                      \
         NULL,                                                                                 \
         0,                                                                                    \
         0,                                                                                    \
         "ADDRESS",                                                                            \
         "address to listen on; loopback when absent",                                         \
         NULL},                                                                                \
        {"timeout",                                                                            \
         NULL,                                                                                 \
         "network.timeout",                                                                    \
         RPI_OPTION_SECONDS,                                                                   \
         offsetof(type, field.timeout_s),                                                      \
         "10min",                                                                              \
         0.001,                                                                                \
         1e9,                                                                                  \
         "TIME",                                                                               \
         "no progress for so long fails an operation",                                         \
         NULL},                                                                                \
        {"warn-after",                                                                         \
         NULL,                                                                                 \
         "network.warn_after",                                                                 \
         RPI_OPTION_SECONDS,                                                                   \
         offsetof(type, field.warn_after_s),                                                   \
         "30s",                                                                                \
         0.001,                                                                                \
         1e9,                                                                                  \
         "TIME",                                                                               \
         "no progress for so long names the late rank",                                        \
         NULL},                                                                                \
        {"connect-timeout",                                                                    \
         NULL,                                                                                 \
         "network.connect_timeout",                                                            \
         RPI_OPTION_SECONDS,                                                                   \
         offsetof(type, field.connect_timeout_s),                                              \
         "60s",                                                                                \
         0.001,                                                                                \
         1e9,                                                                                  \
         "TIME",                                                                               \
         "for all ranks to arrive",                                                            \
         NULL},                                                                                \
    {                                                                                          \
        "chunk", NULL, "network.chunk", RPI_OPTION_BYTES, offsetof(type, field.chunk_bytes),   \
            NULL, 0, 1e9, "BYTES", "data in flight as one piece; chosen when absent", NULL     \
    }

typedef struct rpi_world {
    int rank, ranks, local_rank, local_ranks;
    rp_comm *comm;
    struct rpi_join *join;
} rpi_world;

/* RP_INVALID for more ranks than one host is given. */
rp_status rpi_world_check(const rpi_world_settings *settings);
/* True when -n asks for ranks and this process is not one of them yet. */
bool rpi_world_must_launch(const rpi_world_settings *settings);
/* Start settings->ranks copies of this very command and wait for them; the exit code.
 * argv[0...] are the words behind the command's name, as its main got them. */
int rpi_world_launch(const rpi_world_settings *settings, const char *command, int argc,
                     char **argv);
/* Find this process's world, connect, create the communicator. Collective. On failure nothing
 * is left to undo. */
rp_status rpi_world_join(const rpi_world_settings *settings, rpi_world *out_world);
void rpi_world_leave(rpi_world *world); /* zeros are fine */

#endif
