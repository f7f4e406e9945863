/* What the user says about a training to `redpoll plan train` and `redpoll plan check`, and
 * what the commands make of it. */
#ifndef RPI_CLI_PLAN_TRAINING_H
#define RPI_CLI_PLAN_TRAINING_H

#include "base/option.h"
#include "cli/option_rows.h"
#include "plan/foresight/layout_search.h"
#include "plan/foresight/machine_account.h"

#include <stddef.h>

/* As the user wrote it. */
typedef struct rpi_plan_training {
    const char *model, *device, *machine, *link, *local, *zero, *recompute, *codec, *precision;
    const char *activations_codec; /* NULL: not encoded */
    rpi_option_list devices;
    int64_t hosts, ranks_per_host, tp, cp, pp, dp, micro_batch, global_batch, sequence,
        interleave;
    bool sequence_parallel, fused_attention;
} rpi_plan_training;

/* What the commands make of it. */
typedef struct rpi_planned_training {
    rpi_training_layout layout; /* with 1 where a choice is open */
    rpi_open_choices open;
    rpi_machine machine;
    rpi_plan_device_table *table;
    /* The measurements, the device made of them, and their source; NULL without --machine. */
    rpi_machine_account *account;
    rpi_measured_rates *rates;
    char source[160];
    int64_t hosts, ranks;
    bool local_given, link_given;
} rpi_planned_training;

rp_status rpi_check_zero(const char *text);
rp_status rpi_check_recompute(const char *text);
rp_status rpi_check_precision(const char *text);

/* RP_INVALID: the message says what is wrong. For a table of rows with layouts of their own
 * `needs_batch` is false. Free with rpi_planned_training_close(), also after a failure. */
rp_status rpi_plan_training_read(const rpi_plan_training *said, bool needs_batch,
                                 rpi_planned_training *out);
/* Sets the cost of the given codec in `out->machine`; a part of the function above. */
rp_status rpi_plan_training_codec(const rpi_plan_training *said, rpi_planned_training *out);
void rpi_planned_training_close(rpi_planned_training *planned);

/* clang-format off */
/* Rows of both commands; F(field) is the offset of a field of rpi_plan_training. */
#define RPI_ROWS_PLAN_TRAINING(F)                                                              \
    {"model", "m", NULL, RPI_OPTION_TEXT, F(model), "gpt2", 0, 0, "MODEL",                     \
     "gpt2 or llama, with a size or options, as in redpoll train: llama:7b, "                  \
     "gpt2:layers=48,hidden=6144,heads=64", NULL},                                             \
    {"device", NULL, NULL, RPI_OPTION_TEXT, F(device), NULL, 0, 0, "NAME",                     \
     "that each rank has: a100-80g; others are listed where there is none", NULL},             \
    RPI_ROW_MACHINE(F(machine), NULL,                                                          \
                    "in its place: a machine as redpoll bench machine -o measured it"),        \
    RPI_ROW_DEVICES(F(devices)),                                                               \
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, F(hosts), "1", 1, 16384, "N", "of the training",   \
     NULL},                                                                                    \
    {"ranks-per-host", NULL, NULL, RPI_OPTION_COUNT, F(ranks_per_host), NULL, 1, 1024, "N",    \
     "that each host has; when absent 8, or as many as --machine was measured with", NULL},    \
    RPI_ROW_LINK(F(link), NULL, NULL,                                                          \
                 "of a host, each way, which its ranks share: 200Gbit,5us"),                   \
    RPI_ROW_LOCAL(F(local), NULL,                                                              \
                  "of a rank to the others of its host; the device's when absent"),            \
    {"tp", NULL, NULL, RPI_OPTION_COUNT, F(tp), NULL, 1, 1024, "N",                            \
     "tensor-parallel ranks; the best when absent, and so for what follows", NULL},            \
    {"cp", NULL, NULL, RPI_OPTION_COUNT, F(cp), NULL, 1, 1024, "N",                            \
     "ranks that share each sequence; when absent 1, and any number where a sample has "       \
     "16384 tokens or more, or nothing fits otherwise",                                        \
     NULL},                                                                                    \
    {"pp", NULL, NULL, RPI_OPTION_COUNT, F(pp), NULL, 1, 1024, "N", "stages of a pipeline",    \
     NULL},                                                                                    \
    {"dp", NULL, NULL, RPI_OPTION_COUNT, F(dp), NULL, 1, 1048576, "N",                         \
     "replicas; the ranks over the others", NULL},                                             \
    {"zero", NULL, NULL, RPI_OPTION_TEXT, F(zero), NULL, 0, 0, "0..3",                         \
     "what replicas share: 1 the optimizer, 2 gradients, too, 3 all", rpi_check_zero},         \
    {"micro-batch-size", NULL, NULL, RPI_OPTION_COUNT, F(micro_batch), NULL, 1, 1048576, "N",  \
     "samples that a replica computes at once", NULL},                                         \
    {"recompute", NULL, NULL, RPI_OPTION_TEXT, F(recompute), NULL, 0, 0, "WORD",               \
     "none, selective (attention's scores) or full (layers)", rpi_check_recompute},            \
    {"global-batch-size", NULL, NULL, RPI_OPTION_COUNT, F(global_batch), NULL, 1, 1e9, "N",    \
     "samples of a step", NULL},                                                               \
    {"seq-length", NULL, NULL, RPI_OPTION_COUNT, F(sequence), NULL, 1, 16777216, "N",          \
     "tokens of a sample; the model's positions when absent", NULL},                           \
    {"interleave", NULL, NULL, RPI_OPTION_COUNT, F(interleave), "1", 1, 1000, "N",             \
     "chunks of layers that each stage has", NULL},                                            \
    {"sequence-parallel", NULL, NULL, RPI_OPTION_FLAG, F(sequence_parallel), "on", 0, 0, NULL, \
     "what lies between products is shared by tensor-parallel ranks, too", NULL},              \
    {"fused-attention", NULL, NULL, RPI_OPTION_FLAG, F(fused_attention), "on", 0, 0, NULL,     \
     "scores of attention are never stored", NULL},                                            \
    {"precision", NULL, NULL, RPI_OPTION_TEXT, F(precision), NULL, 0, 0, "NAME",               \
     "bf16, bf16-fp32 (gradients summed in fp32), fp16, amp (weights in fp32) or fp32; when "  \
     "absent bf16, and fp32 with --machine",                                                   \
     rpi_check_precision},                                                                     \
    {"activations-codec", NULL, NULL, RPI_OPTION_TEXT, F(activations_codec), NULL, 0, 0,       \
     "CODEC",                                                                                  \
     "of activations between stages and tensor-parallel ranks, as redpoll train; as they are " \
     "when absent",                                                                            \
     rpi_check_codec},                                                                         \
    RPI_ROW_CODEC(F(codec), NULL, "fp32", "of gradients between hosts; fp32: as they are")
/* clang-format on */

#endif
