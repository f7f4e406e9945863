/* `redpoll info`: what this build and this machine can do. */
#include "cli/commands.h"

#include "base/cpu.h"
#include "base/status.h"
#include "cli/build_info.h"
#include "cli/option_rows.h"
#include "codec/codec.h"
#include "engine/backend.h"
#include "net/transport.h"
#include "plan/plan.h"
#include "redpoll/version.h"
#include "train/network.h"

#include <cjson/cJSON.h>

typedef struct settings {
    bool json, markdown;
    const char *parameters;
} settings;

static const rpi_option options[] = {
    RPI_ROW_JSON(offsetof(settings, json), "one JSON object (docs/json.md)"),
    {"parameters", NULL, NULL, RPI_OPTION_TEXT, offsetof(settings, parameters), NULL, 0, 0,
     "MODEL", "only the number of parameters of a model for Fashion-MNIST", NULL},
    {"options", NULL, NULL, RPI_OPTION_FLAG, offsetof(settings, markdown), NULL, 0, 0, NULL,
     "every command's options, variables and YAML keys in Markdown", NULL},
    {0},
};

/* One catalogue as (name, summary) pairs; name NULL past the end. */
typedef struct entry {
    const char *name, *summary;
} entry;
typedef entry (*entry_at)(int index);

static entry codec_at(int index) {
    static char names[16][16];
    const rpi_codec_kind *kind = rpi_codec_at(index);
    if (!kind || index >= 16) return (entry){NULL, NULL};
    if (!kind->bits_max) return (entry){kind->name, kind->summary};
    snprintf(names[index], sizeof names[index], "%s%d...%s%d", kind->name, kind->bits_min,
             kind->name, kind->bits_max);
    return (entry){names[index], kind->summary};
}

static entry algorithm_at(int index) {
    static char names[32][40];
    const rpi_algorithm *algorithm = rpi_algorithm_at(index);
    if (!algorithm || index >= 32) return (entry){NULL, NULL};
    snprintf(names[index], sizeof names[index], "%s %s",
             rpi_collective_name(algorithm->collective), algorithm->name);
    return (entry){names[index], algorithm->summary};
}

static entry transport_at(int index) {
    const rpi_transport *transport = rpi_transport_at(index);
    return transport ? (entry){transport->name, transport->summary} : (entry){NULL, NULL};
}

static entry model_at(int index) {
    const rpi_model *model = rpi_model_at(index);
    return model ? (entry){model->name, model->summary} : (entry){NULL, NULL};
}

static entry backend_at(int index) {
    const rpi_backend *backend = rpi_backend_at(index);
    return backend ? (entry){backend->name, backend->summary} : (entry){NULL, NULL};
}

static const struct {
    const char *title;
    entry_at at;
} catalogues[] = {
    {"codecs", codec_at}, {"algorithms", algorithm_at}, {"transports", transport_at},
    {"models", model_at}, {"backends", backend_at},
};
enum { CATALOGUES = sizeof catalogues / sizeof catalogues[0] };

static void print_json(void) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "version", rp_version());
    cJSON_AddStringToObject(object, "build", RPI_BUILD_TYPE);
    cJSON_AddStringToObject(object, "compiler", RPI_BUILD_COMPILER);
    cJSON_AddStringToObject(object, "onednn", RPI_BUILD_ONEDNN);
    cJSON_AddStringToObject(object, "sanitizers", RPI_BUILD_SANITIZE);
    cJSON_AddStringToObject(object, "isa", rpi_isa_name(rpi_cpu_isa()));
    cJSON_AddStringToObject(object, "cpu_features", rpi_cpu_features());
    cJSON_AddNumberToObject(object, "cores", rpi_cpu_count());
    for (int c = 0; c < CATALOGUES; c++) {
        cJSON *list = cJSON_AddArrayToObject(object, catalogues[c].title);
        entry e;
        for (int i = 0; (e = catalogues[c].at(i)).name; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(e.name));
    }
    rpi_command_print_json(object);
}

static void print_table(void) {
    printf("redpoll %s\n", rp_version());
    printf("  build      %s, %s, oneDNN %s%s%s\n", RPI_BUILD_TYPE, RPI_BUILD_COMPILER,
           RPI_BUILD_ONEDNN, RPI_BUILD_SANITIZE[0] ? ", sanitizers " : "", RPI_BUILD_SANITIZE);
    printf("  processor  %d cores, kernels for %s (it has: %s)\n", rpi_cpu_count(),
           rpi_isa_name(rpi_cpu_isa()), rpi_cpu_features());
    for (int c = 0; c < CATALOGUES; c++) {
        printf("%s\n", catalogues[c].title);
        entry e;
        for (int i = 0; (e = catalogues[c].at(i)).name; i++)
            printf("  %-24s %s\n", e.name, e.summary);
    }
}

/* Elements that have a gradient: running statistics are not among them. */
static rp_status print_parameters(const char *model) {
    rpi_model_shape shape = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    rpi_network network = {0};
    rpi_weights *weights = NULL;
    RP_TRY(rpi_network_build(model, &shape, &network));
    rp_status status = rpi_weights_create(network.graph, network.loss, &weights);
    if (status == RP_OK) printf("%lld\n", (long long)rpi_weights_count(weights));
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
    return status;
}

static void print_options(void) {
    printf("# Options, variables and YAML keys\n\n"
           "Written by `redpoll info --options` from the tables that the commands read. Lowest "
           "first: default,\n"
           "configuration file, environment, command line. `REDPOLL_ISA`, `REDPOLL_LOG` and "
           "what launchers\n"
           "set are in docs/launching.md.\n");
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        printf("\n## redpoll %s\n\n", command->name);
        rpi_options_markdown(command->options, stdout);
    }
}

static void print_help(void) {
    printf("usage: redpoll info [--json]\n\nWhat this build and this machine can do.\n\n");
    rpi_options_help(options, stdout);
    printf("\nexamples:\n  redpoll info --json\n  redpoll info --parameters resnet18\n");
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = rpi_options_parse(options, argc, argv, &s, NULL, &wants_help);
    if (status != RP_OK) return rpi_command_misused("info", status);
    if (wants_help)
        print_help();
    else if (s.parameters)
        status = print_parameters(s.parameters);
    else if (s.markdown)
        print_options();
    else if (s.json)
        print_json();
    else
        print_table();
    return status == RP_OK ? RPI_EXIT_DONE : rpi_command_misused("info", status);
}

const rpi_command rpi_command_info = {
    .name = "info",
    .summary = "what this build and this machine can do",
    .options = options,
    .run = run,
};
