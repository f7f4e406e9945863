#include "train/agree.h"

#include "base/append.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { CHOICES = 8192, VALUE = 1024 };

/* Options that a rank may have of its own, or whose results add_facts() describes. */
static bool may_differ(const char *name) {
    static const char *const names[] = {
        "data-dir",    "data-threads",    "out",        "overwrite",
        "resume",      "backend",         "threads",    "model",
        "codec",       "train-images",    "steps",      "epochs",
        "test-images", "config",          "batch-size", "global-batch-size",
        "accumulate",  "checkpoint-time", "recompute",  "micro-batch-size",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Does the option's field lie in these options? Other options are the command's: how ranks
 * meet. */
static bool is_of_training(const rpi_train_options *o, const rpi_option *option) {
    const char *field = (const char *)o->target + option->offset;
    return field >= (const char *)o && field < (const char *)(o + 1);
}

/* Adds every option of training in the table. */
static void add_options(const rpi_train_options *o, char text[CHOICES]) {
    char value[VALUE];
    for (const rpi_option *option = o->table; option && option->name; option++)
        if (is_of_training(o, option) && !may_differ(option->name))
            rpi_append(text, CHOICES, "--%s %s\n", option->name,
                       rpi_option_text(option, o->target, value, sizeof value));
}

/* Adds what the options have become. */
static void add_facts(const rpi_trainer *t, char text[CHOICES]) {
    const rpi_train_options *o = t->options;
    char codec[RP_ADAPTIVE_TEXT], shape[96];
    t->network.task->describe(&t->source.shape, shape, sizeof shape);
    rpi_append(text, CHOICES, "--model %s\ndata %lld of %s\n", t->network.text,
               (long long)t->source.train_count, shape);
    rpi_append(text, CHOICES, "--global-batch-size %lld\n--accumulate %lld\n",
               (long long)t->global_batch,
               (long long)(t->global_batch / t->place.workers / t->micro_batch));
    rpi_append(text, CHOICES, "steps of the run %lld\nsteps done %lld\n",
               (long long)t->total_steps, (long long)t->step);
    rpi_append(text, CHOICES, "--codec %s\n--out %d\n",
               rp_adaptive_codec_text(&t->codec, codec), o->out != NULL);
}

/* One choice a line: "--seed 1". */
static void describe(const rpi_trainer *t, char text[CHOICES]) {
    memset(text, 0, CHOICES);
    add_facts(t, text);
    add_options(t->options, text);
}

/* The line in which two texts first differ. */
static void line_at(const char *text, size_t position, char *line, size_t bytes) {
    while (position > 0 && text[position - 1] != '\n') position--;
    snprintf(line, bytes, "%.*s", (int)strcspn(text + position, "\n"), text + position);
}

rp_status rpi_train_agree(const rpi_trainer *t, rp_comm *comm) {
    if (rp_comm_world(comm) == 1) return RP_OK;
    char own[CHOICES], first[CHOICES];
    describe(t, own);
    memcpy(first, own, sizeof first);
    RP_TRY(rp_broadcast(comm, first, sizeof first, RP_U8, NULL));
    size_t position = 0;
    while (position < CHOICES - 1 && own[position] == first[position]) position++;
    if (position == CHOICES - 1) return RP_OK;
    char mine[160], theirs[160];
    line_at(own, position, mine, sizeof mine);
    first[CHOICES - 1] = '\0';
    line_at(first, position, theirs, sizeof theirs);
    return RP_FAIL(MISMATCH, "rank %d has '%s', rank 0 has '%s'; start all ranks alike",
                   t->place.rank, mine, theirs);
}
