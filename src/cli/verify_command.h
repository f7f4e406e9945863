/* `redpoll verify`, between its files: verify_command.c reads what was asked for,
 * verify_runs.c trains, verify_compare.c compares, verify_endings.c reads why a run ended
 * early, verify_print.c says what came out. */
#ifndef RPI_CLI_VERIFY_COMMAND_H
#define RPI_CLI_VERIFY_COMMAND_H

#include "cli/train_settings.h"
#include "train/parallel/train_place.h"
#include "train/parallel/verify.h"
#include "train/trainer.h"

enum { RPI_VERIFY_FOLDER = 512, RPI_VERIFY_RUN = RPI_VERIFY_FOLDER + 32 };
enum { RPI_VERIFY_LOGS = RPI_VERIFY_RUN + 8, RPI_VERIFY_UNEQUAL = 512 };

/* The words of a `redpoll train`; argv[0] is the command's name. Texts are borrowed, or lie in
 * `own`. */
typedef struct rpi_verify_words {
    char **argv;
    int count, room;
    char own[1024];
    size_t used;
} rpi_verify_words;
rp_status rpi_verify_words_open(int most, rpi_verify_words *words);
void rpi_verify_words_close(rpi_verify_words *words); /* zeros are fine */
void rpi_verify_words_add(rpi_verify_words *words, const char *word);
void rpi_verify_words_number(rpi_verify_words *words, const char *option, int64_t number);

typedef struct rpi_verify_settings {
    int64_t steps;
    double tolerance; /* below 0: not said, bounds are those of the layout */
    const char *out;  /* where both runs stay; NULL: in a temporary folder, which goes */
    rpi_option_list against;
    bool json;
} rpi_verify_settings;

/* What is compared. */
typedef struct rpi_verify_job {
    const rpi_verify_settings *asked;
    rpi_train_settings train; /* as the layout is trained */
    rpi_verify_words user;    /* what the user said of that */
    rpi_verify_layout layout;
    rpi_train_place place; /* of its rank 0 */
    int64_t global_batch;
    char folder[RPI_VERIFY_FOLDER];
    char one[RPI_VERIFY_RUN], other[RPI_VERIFY_RUN]; /* folders of the two runs */
} rpi_verify_job;

/* ---- verify_runs.c ---- */

/* What every run of the job is trained with, behind the user's words; then what one rank has in
 * place of the layout. */
void rpi_verify_layout_words(const rpi_verify_job *job, rpi_verify_words *words);
void rpi_verify_one_words(const rpi_verify_job *job, rpi_verify_words *words);
/* Trains both, one after the other, compares them and prints what came out; what ranks print
 * goes to files in the job's folder. Where the layout diverges one rank is trained as well, and
 * the steps before are compared if it diverges at the same step. The command's exit code, the
 * reason of which has been said; out_run_failed: what ranks have printed is worth keeping. */
int rpi_verify_train_and_compare(const rpi_verify_job *job, bool *out_run_failed);
/* The folder with what the ranks of a run have printed. */
void rpi_verify_logs(const char *run, char path[RPI_VERIFY_LOGS]);

/* ---- verify_compare.c ---- */

/* Something that is further from one rank than its bound, or the first that differs at all. */
typedef struct rpi_verify_finding {
    int64_t step; /* 0: nothing was found */
    rpi_verify_kind kind;
    rpi_verify_tensor tensor;
    double relative, bound;
    bool is_of_tensor; /* these are relative to the tensor's own largest number */
} rpi_verify_finding;

typedef struct rpi_verify_row {
    int64_t compared, differing;
    double largest, relative, bound; /* of all steps; the bound of the last */
    bool is_beyond;
} rpi_verify_row;

typedef struct rpi_verify_result {
    rpi_verify_row rows[RPI_VERIFY_KINDS];
    rpi_verify_finding first, first_tensor, beyond;
    rpi_verify_layout layout; /* with what the runs have shown of it */
    int64_t steps;
    /* "copies are not equal after step 1: ...": the layout's run has ended so, and there was
     * nothing to compare; else "" */
    char unequal[RPI_VERIFY_UNEQUAL];
    /* Both runs have diverged at the step behind the last that was compared: what the layout's
     * said of it; else "" */
    char divergence[RPI_VERIFY_UNEQUAL];
} rpi_verify_result;

/* Compares the first `steps` steps, which both runs have made; 0: none. */
rp_status rpi_verify_compare(const rpi_verify_job *job, int64_t steps,
                             rpi_verify_result *out_result);

/* ---- verify_endings.c ---- */

/* Has a rank of the run whose output is in the folder `logs` ended because its copies differ
 * from those of others? Then what it says of that, cut to `bytes`. */
bool rpi_verify_find_unequal(const char *logs, int64_t ranks, char *out, size_t bytes);

/* The step in which that run diverged, as one of its ranks has said, and what it said, cut to
 * `bytes`; 0: none has. */
int64_t rpi_verify_find_divergence(const char *logs, int64_t ranks, char *out, size_t bytes);

/* ---- verify_print.c ---- */

void rpi_verify_print(const rpi_verify_job *job, const rpi_verify_result *result);
void rpi_verify_print_json(const rpi_verify_job *job, const rpi_verify_result *result);

#endif
