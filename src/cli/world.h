/* What every command that runs on ranks has in common: its options, starting local ranks with
 * -n, joining the world that this process was started in, and leaving it. */
#ifndef RPI_CLI_WORLD_H
#define RPI_CLI_WORLD_H

#include "base/option.h"
#include "cli/option_rows.h"
#include "redpoll/comm.h"

#include <stddef.h>
#include <stdio.h>

enum { RPI_MOST_RANKS = 65536 }; /* of -n */

typedef struct rpi_world_settings {
    int64_t ranks; /* -n: 0 when absent */
    int64_t hosts; /* that ranks count as being on, evenly; 0: those they are on */
    const char *link, *transport, *bind_host;
    double timeout_s, warn_after_s, connect_timeout_s;
    int64_t chunk_bytes;
    bool tls;
    bool progress_thread; /* set by the command, or by an option of its own */
    /* Set by the command, not by options. */
    double stop_grace_s;  /* of rpi_launch_options */
    bool survives_deaths; /* likewise */
    int vital_ranks;      /* likewise */
    int restarts;         /* likewise */
    rp_memory memory;     /* of rp_comm_options */
    FILE *greeting;       /* for "rank 2 of 4, found by torchrun"; NULL: not said */
} rpi_world_settings;

/* For option tables: says what is wrong before any rank is started. */
rp_status rpi_world_check_transport(const char *text);

/* Rows of an option table, for a settings struct with an rpi_world_settings field. */
/* clang-format off */
#define RPI_WORLD_OPTIONS(type, field)                                                         \
    RPI_ROWS_RANKS(offsetof(type, field.ranks), "parallelism.dp", NULL, 1, RPI_MOST_RANKS,     \
                   "start N ranks on this machine"),                                           \
    RPI_ROW_LINK(offsetof(type, field.link), "network.link", NULL,                             \
                 "shape each rank's traffic, each way: 1Gbit,50us"),                           \
    {"transport", NULL, "network.transport", RPI_OPTION_TEXT,                                  \
     offsetof(type, field.transport), "auto", 0, 0, "NAME", "auto, shm or tcp",                \
     rpi_world_check_transport},                                                               \
    {"bind", NULL, "network.bind", RPI_OPTION_TEXT, offsetof(type, field.bind_host), NULL, 0,  \
     0, "ADDRESS", "address to listen on; loopback when absent", NULL},                        \
    RPI_ROW_TLS(offsetof(type, field.tls), "network.tls",                                      \
                "encrypt all that ranks say by TCP (TLS 1.3); it needs a secret"),             \
    RPI_ROW_WORLD_TIME("timeout", "network.timeout", offsetof(type, field.timeout_s), "10min", \
                       "no progress for so long fails an operation"),                          \
    RPI_ROW_WORLD_TIME("warn-after", "network.warn_after", offsetof(type, field.warn_after_s), \
                       "30s", "no progress for so long names the late rank"),                  \
    RPI_ROW_WORLD_TIME("connect-timeout", "network.connect_timeout",                           \
                       offsetof(type, field.connect_timeout_s), "60s",                         \
                       "for all ranks to arrive"),                                             \
    RPI_ROW_CHUNK(offsetof(type, field.chunk_bytes), "network.chunk",                          \
                  "data in flight as one piece; chosen when absent")
#define RPI_ROW_WORLD_TIME(name, yaml, field, fallback, help)                                  \
    {name, NULL, yaml, RPI_OPTION_SECONDS, field, fallback, 0.001, 1e9, "TIME", help, NULL}
/* clang-format on */

typedef struct rpi_world {
    int rank, ranks, local_rank, local_ranks;
    int cores;     /* this rank's share of those of its host, at least 1 */
    rp_comm *comm; /* NULL: this rank was started again, and the others have it no more */
    const rpi_world_settings *settings;
    struct rpi_join *again; /* rpi_world_store() has opened it; else NULL */
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
/* In place of rpi_world_join(), in the place of a rank that has died: as that one where it had
 * not come yet; without a communicator where the ranks have met, and go on without it. RP_PEER:
 * it died while they were meeting, and all fail. */
rp_status rpi_world_take_place(const rpi_world_settings *settings, rpi_world *out_world);
/* Where ranks may come back: the launcher's store, opened when it is first asked for, and
 * another communicator over it, made as the world's was. */
rp_status rpi_world_store(rpi_world *world, const rp_store **out_store);
rp_status rpi_world_connect(rpi_world *world, const rp_comm_options *options, int rank,
                            int ranks, rp_comm **out_comm);
/* Ten seconds at most, after a failure three: docs/comm.md says for what. Zeros are fine. */
void rpi_world_leave(rpi_world *world);

#endif
