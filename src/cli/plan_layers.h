/* Lists that users write for `redpoll plan pipeline`. The layers of a model are
 *
 *
 *     embedding:table=1ms,24*block=10ms/20ms/10ms,head:table=12ms
 *
 * Each is [N*][NAME[:TIE]=]FORWARD[/BACKWARD[/WEIGHTS]]: N equal layers; a TIE names a table
 * that several layers share; BACKWARD is the whole backward pass, twice the forward one when
 * absent, WEIGHTS the part of it for weights, half of it when absent. */
#ifndef RPI_CLI_PLAN_LAYERS_H
#define RPI_CLI_PLAN_LAYERS_H

#include "plan/pipelines/pipeline_cut.h"

typedef struct rpi_layer_list {
    rpi_pipeline_layer *layers; /* owned */
    int count;
    char *words; /* owned: names */
} rpi_layer_list;

/* RP_INVALID: the message says what is wrong. RP_NOMEM. Zeroed on failure; else the caller
 * frees it. */
rp_status rpi_layers_parse(const char *text, rpi_layer_list *out_list);
void rpi_layers_free(rpi_layer_list *list); /* zeros are fine */
/* The check of an option. */
rp_status rpi_layers_check(const char *text);

/* Times separated by commas, at most so many, into `out`, which may be NULL. */
rp_status rpi_times_parse(const char *text, int most, double *out, int *out_count);
rp_status rpi_times_check(const char *text);
/* "100MB,60MB": the second is a part of the first, and all of it when absent. */
rp_status rpi_byte_pair_parse(const char *text, double out[2]);
rp_status rpi_byte_pair_check(const char *text);

#endif
