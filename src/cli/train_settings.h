/* What `redpoll train` was asked for: its table of options, and how they are read. */
#ifndef RPI_CLI_TRAIN_SETTINGS_H
#define RPI_CLI_TRAIN_SETTINGS_H

#include "base/option.h"
#include "cli/config.h"
#include "cli/world.h"
#include "train/checkpoint/run_settings.h"
#include "train/strategies/strategy.h"
#include "train/train.h"

typedef struct rpi_train_settings {
    rpi_world_settings world;
    rpi_train_options train;
    const char *config;
    const char *machine;        /* that a run is predicted by; NULL: it is not */
    char model[RPI_MODEL_TEXT]; /* as it is trained: a folder's, with the head of the data */
    char folder[256];           /* chosen for a run without --out */
    const char *on_loss;        /* NULL: as the strategy says */
    int64_t restarts;           /* of a rank that is killed, at most */
    rpi_train_returns returns;  /* then */
    char strategy[sizeof(rpi_strategy_words)]; /* that with this */
    char changes[4096]; /* lines: what a run that goes on does differently */
} rpi_train_settings;

/* ---- train_options.c ---- */

extern const rpi_option rpi_train_table[];

/* ---- train_settings.c ---- */

/* What the words come from besides argv; settings point into both. Zeros to begin with. */
typedef struct rpi_train_sources {
    rpi_config *config;
    rpi_run_settings *recorded;
} rpi_train_sources;

/* From defaults, the run that goes on, a file, the environment and the command line, each over
 * the one before. *wants_help: nothing else was read. RP_INVALID, RP_CORRUPT: a file of the
 * run; RP_IO. */
rp_status rpi_train_settings_read(int argc, char **argv, rpi_train_settings *s,
                                  rpi_train_sources *from, bool *wants_help);
void rpi_train_settings_close(rpi_train_sources *from);

/* ---- train_returns.c ---- */

/* Finds out from the store of the launcher what this process was started for. */
void rpi_train_prepare_returns(rpi_train_settings *s, rpi_world *world);
/* Where results go: as --out says, else as rank 0 chooses. Collective, but for who comes back.
 */
rp_status rpi_train_find_folder(rpi_train_settings *s, rpi_world *world);

/* ---- train_result.c ---- */

void rpi_train_print_result(const rpi_train_settings *s, const rpi_world *world,
                            const rpi_train_result *result);

#endif
