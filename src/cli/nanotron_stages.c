#include "cli/nanotron_stages.h"

#include "base/append.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 64 };

typedef struct stage {
    int node, data; /* data: a scalar; 0: it names none */
    int64_t start;
} stage;

static rp_status fail_at(const rpi_nanotron *t, int id, const char *text) {
    return RP_FAIL(INVALID, "%s:%zu: %s", t->file,
                   rpi_nanotron_node(t, id)->start_mark.line + 1, text);
}

/* Text that they read by its name is to be tokenized first, and lies where it is said. */
static rp_status take_folder(const rpi_nanotron *t, stage *s) {
    static const char *const keys[] = {"data.dataset.dataset_folder",
                                       "data.dataset.hf_dataset_or_datasets"};
    char path[64];
    int which = rpi_nanotron_find(t, s->node, keys[0]) ? 0 : 1;
    int folder = rpi_nanotron_take(t, s->node, keys[which]);
    if (!folder) return RP_OK;
    yaml_node_t *node = rpi_nanotron_node(t, folder);
    if (node->type == YAML_SEQUENCE_NODE &&
        node->data.sequence.items.top - node->data.sequence.items.start == 1)
        folder = *node->data.sequence.items.start;
    s->data = folder;
    if (*rpi_nanotron_text(t, folder)) return RP_OK;
    snprintf(path, sizeof path, "data_stages.%s", keys[which]);
    return rpi_nanotron_refuse(t, folder, path, "one folder of tokens", NULL);
}

/* All stages have sequences of one length here. */
static rp_status check_length(const rpi_nanotron *t, const stage *s) {
    char own[RPI_YAML_NUMBER], all[RPI_YAML_NUMBER];
    int id = rpi_nanotron_find(t, s->node, "sequence_length");
    int whole = rpi_nanotron_find(t, t->root, "tokens.sequence_length");
    const char *said = rpi_nanotron_number(t, id, own);
    const char *wanted = rpi_nanotron_number(t, whole, all);
    (void)rpi_nanotron_take(t, s->node, "sequence_length");
    if (!id || rpi_yaml_is_null(rpi_nanotron_node(t, id)) ||
        (*said && strcmp(said, wanted) == 0))
        return RP_OK;
    return rpi_nanotron_refuse(t, id, "data_stages.sequence_length", *wanted ? wanted : "null",
                               "tokens.sequence_length is for all");
}

static rp_status take_start(const rpi_nanotron *t, stage *s) {
    char number[RPI_YAML_NUMBER], *end = NULL;
    int id = rpi_nanotron_take(t, s->node, "start_training_step");
    const char *text = rpi_nanotron_number(t, id, number);
    s->start = 1;
    if (!id) return RP_OK;
    s->start = strtoll(text, &end, 10);
    if (*text && !*end && s->start >= 1 && s->start <= 1000000000000) return RP_OK;
    return rpi_nanotron_refuse(t, id, "data_stages.start_training_step", "whole numbers from 1",
                               NULL);
}

static rp_status read_stage(const rpi_nanotron *t, int id, stage *out) {
    stage s = {.node = id};
    if (!rpi_nanotron_is_mapping(t, id))
        return rpi_nanotron_refuse(t, id, "data_stages", "a list of stages", NULL);
    RP_TRY(rpi_nanotron_check_moved(t, id, rpi_nanotron_moved_in_stage, "data_stages."));
    RP_TRY(take_folder(t, &s));
    RP_TRY(take_start(t, &s));
    RP_TRY(check_length(t, &s));
    RP_TRY(rpi_nanotron_take_all(t, id, rpi_nanotron_stage, "data_stages."));
    *out = s;
    return rpi_nanotron_check_left(t, id, "data_stages.");
}

static int by_start(const void *a, const void *b) {
    const stage *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* In the order of their first steps, as there; the first is the run's. */
static rp_status check_order(const rpi_nanotron *t, const stage *stages, int count) {
    if (stages[0].start != 1)
        return fail_at(t, stages[0].node, "data_stages: none has start_training_step: 1");
    for (int i = 1; i < count; i++)
        if (stages[i].start == stages[i - 1].start)
            return fail_at(t, stages[i].node,
                           "data_stages: another has the same start_training_step");
    return RP_OK;
}

/* "tokens:A", or "stages:tokens:A;10=tokens:B". A stage that names none has tokens made up
 * there, and here --data to name them, for all. */
static rp_status put_data(const rpi_nanotron *t, const stage *stages, int count) {
    char text[RPI_NANOTRON_DATA] = "";
    for (int i = 0; i < count; i++) {
        if (!stages[i].data) return RP_OK;
        if (count > 1 && i == 0) rpi_append(text, sizeof text, "stages:");
        if (i > 0) rpi_append(text, sizeof text, ";%lld=", (long long)stages[i].start);
        rpi_append(text, sizeof text, "tokens:%s", rpi_nanotron_text(t, stages[i].data));
    }
    if (strlen(text) == sizeof text - 1)
        return fail_at(t, stages[0].node, "data_stages: names that are too long");
    return rpi_nanotron_put_absent(t, "data.dataset", text);
}

static rp_status read_stages(const rpi_nanotron *t, int list) {
    stage stages[MOST_STAGES];
    yaml_node_t *node = rpi_nanotron_node(t, list);
    if (node->type != YAML_SEQUENCE_NODE)
        return rpi_nanotron_refuse(t, list, "data_stages", "a list of stages", NULL);
    int count = (int)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > MOST_STAGES) return fail_at(t, list, "data_stages: too many stages");
    if (count == 0) return RP_OK;
    for (int i = 0; i < count; i++)
        RP_TRY(read_stage(t, rpi_nanotron_node(t, list)->data.sequence.items.start[i],
                          &stages[i]));
    qsort(stages, (size_t)count, sizeof *stages, by_start);
    RP_TRY(check_order(t, stages, count));
    return put_data(t, stages, count);
}

rp_status rpi_nanotron_stages(const rpi_nanotron *t) {
    int stages = rpi_nanotron_take(t, t->root, "data_stages");
    if (!stages || rpi_yaml_is_null(rpi_nanotron_node(t, stages))) return RP_OK;
    return read_stages(t, stages);
}
