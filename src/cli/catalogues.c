#include "cli/catalogues.h"

#include "codec/codec.h"
#include "comm/values/reductions.h"
#include "engine/backend.h"
#include "engine/optimizer.h"
#include "net/link/transport.h"
#include "plan/pipelines/pipeline_kind.h"
#include "plan/plan.h"
#include "plan/topologies/topology.h"
#include "train/data/dataset.h"
#include "train/models/model.h"
#include "train/schedules/lr_schedule.h"
#include "train/strategies/strategy.h"

#include <string.h>

/* With the options it takes. */
static rpi_entry codec_at(int index) {
    static char names[16][16], summaries[16][640];
    const rpi_codec_kind *kind = rpi_codec_at(index);
    if (!kind || index >= 16) return (rpi_entry){NULL, NULL};
    char options[512];
    snprintf(summaries[index], sizeof summaries[index],
             kind->options ? "%s. Options: %s" : "%s", kind->summary,
             rpi_codec_options_text(kind, options, sizeof options));
    if (!kind->bits_max) return (rpi_entry){kind->name, summaries[index]};
    snprintf(names[index], sizeof names[index], "%s%d...%s%d", kind->name, kind->bits_min,
             kind->name, kind->bits_max);
    return (rpi_entry){names[index], summaries[index]};
}

static rpi_entry algorithm_at(int index) {
    static char names[32][40];
    const rpi_algorithm *algorithm = rpi_algorithm_at(index);
    if (!algorithm || index >= 32) return (rpi_entry){NULL, NULL};
    snprintf(names[index], sizeof names[index], "%s %s",
             rpi_collective_name(algorithm->collective), algorithm->name);
    return (rpi_entry){names[index], algorithm->summary};
}

/* A model's options say what they are for. */
static rpi_entry model_at(int index) {
    static char help[RPI_MODEL_HELP];
    const rpi_model *model = rpi_model_at(index);
    if (!model) return (rpi_entry){NULL, NULL};
    return (rpi_entry){model->name, rpi_model_help(model, help, sizeof help)};
}

/* Catalogues of kinds that begin with their name and summary. */
#define ENTRY_AT(function, type, kind_at)                                                      \
    static rpi_entry function(int index) {                                                     \
        const type *kind = kind_at(index);                                                     \
        return kind ? (rpi_entry){kind->name, kind->summary} : (rpi_entry){NULL, NULL};        \
    }
ENTRY_AT(transport_at, rpi_transport, rpi_transport_at)
ENTRY_AT(dataset_at, rpi_dataset_kind, rpi_dataset_kind_at)
ENTRY_AT(optimizer_at, rpi_optimizer, rpi_optimizer_at)
ENTRY_AT(schedule_at, rpi_lr_schedule, rpi_lr_schedule_at)
ENTRY_AT(strategy_at, rpi_strategy, rpi_strategy_at)
ENTRY_AT(backend_at, rpi_backend, rpi_backend_at)
ENTRY_AT(topology_at, rpi_topology_kind, rpi_topology_kind_at)
ENTRY_AT(pipeline_at, rpi_pipeline_kind, rpi_pipeline_kind_at)

static const rpi_catalogue catalogues[] = {
    {"codecs", "codec", codec_at},
    {"algorithms", "algorithm", algorithm_at},
    {"transports", "transport", transport_at},
    {"models", "model", model_at},
    {"data_sets", "data", dataset_at},
    {"optimizers", "optimizer", optimizer_at},
    {"lr_schedules", "lr-schedule", schedule_at},
    {"strategies", "strategy", strategy_at},
    {"backends", "backend", backend_at},
    {"topologies", "topology", topology_at},
    {"pipelines", "schedule", pipeline_at},
};

const rpi_catalogue *rpi_catalogue_at(int index) {
    int count = (int)(sizeof catalogues / sizeof catalogues[0]);
    return index >= 0 && index < count ? &catalogues[index] : NULL;
}

/* ---- the values of options ---- */

static void add_word(const char *word, char *text, size_t bytes) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? " " : "", word);
}

static void add_codecs(char *text, size_t bytes) {
    const rpi_codec_kind *kind;
    for (int i = 0; (kind = rpi_codec_at(i)) != NULL; i++)
        for (int bits = kind->bits_min; bits <= kind->bits_max; bits++) {
            char name[32];
            snprintf(name, sizeof name, kind->bits_max ? "%s%d" : "%s", kind->name, bits);
            add_word(name, text, bytes);
        }
}

/* The name of an algorithm is the last word of its entry; algorithms of several collectives may
 * share one. */
static void add_algorithms(char *text, size_t bytes) {
    const rpi_algorithm *algorithm, *before;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        bool is_new = true;
        for (int k = 0; k < i && (before = rpi_algorithm_at(k)) != NULL; k++)
            is_new = is_new && strcmp(before->name, algorithm->name) != 0;
        if (is_new) add_word(algorithm->name, text, bytes);
    }
}

static void add_entries(const rpi_catalogue *catalogue, char *text, size_t bytes) {
    rpi_entry e;
    for (int i = 0; (e = catalogue->at(i)).name; i++) add_word(e.name, text, bytes);
}

static void add_dtypes(char *text, size_t bytes) {
#define DTYPE(name, value, word, size, floating) add_word(word, text, bytes);
    RP_DTYPE_TABLE(DTYPE)
#undef DTYPE
}

static void add_reductions(char *text, size_t bytes) {
    for (int reduction = RP_SUM; reduction <= RP_PREMUL_SUM; reduction++)
        add_word(rpi_reduction_name((rp_reduction)reduction), text, bytes);
}

const char *rpi_option_choices(const rpi_option *option, char *text, size_t bytes) {
    const rpi_catalogue *catalogue;
    text[0] = '\0';
    if (strcmp(option->name, "codec") == 0) {
        add_codecs(text, bytes);
    } else if (strcmp(option->name, "algorithm") == 0) {
        add_algorithms(text, bytes);
    } else if (strcmp(option->name, "transport") == 0) {
        /* The other transports are not for users to choose. */
        snprintf(text, bytes, "auto shm tcp");
    } else if (strcmp(option->name, "dtype") == 0) {
        add_dtypes(text, bytes);
    } else if (strcmp(option->name, "reduce") == 0) {
        add_reductions(text, bytes);
    } else if (option->value && strchr(option->value, '|')) {
        snprintf(text, bytes, "%s", option->value);
        for (char *c = text; *c; c++) *c = *c == '|' ? ' ' : *c;
    } else {
        if (strcmp(option->name, "schedule") == 0) add_word("auto", text, bytes);
        for (int i = 0; (catalogue = rpi_catalogue_at(i)) != NULL; i++)
            if (strcmp(catalogue->option, option->name) == 0)
                add_entries(catalogue, text, bytes);
    }
    return text;
}
