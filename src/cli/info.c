/* `redpoll info`: what this build and this machine can do. */
#include "cli/commands.h"

#include "base/cpu.h"
#include "base/status.h"
#include "base/wrap.h"
#include "cli/build_info.h"
#include "cli/catalogues.h"
#include "cli/help.h"
#include "cli/host_hwloc.h"
#include "cli/info_model.h"
#include "cli/kernel_forms.h"
#include "cli/option_rows.h"
#include "cuda/cuda.h"
#include "net/trust/secret.h"
#include "net/trust/tls.h"
#include "plan/pipelines/pipeline_kind.h"
#include "redpoll/version.h"
#include "train/models/network.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

typedef struct settings {
    bool json, markdown;
    const char *parameters;
    rpi_info_model model;
} settings;

#define FIELD(name) offsetof(settings, model.name)

static const rpi_option options[] = {
    RPI_ROW_JSON(offsetof(settings, json), "one JSON object (docs/json.md)"),
    {"model", NULL, NULL, RPI_OPTION_TEXT, FIELD(model), NULL, 0, 0, "MODEL",
     "parameters, operations and memory of a training step of this model, by layer; hf:FOLDER "
     "too",
     NULL},
    {"batch-size", NULL, NULL, RPI_OPTION_COUNT, FIELD(batch), "1", 1, 1 << 16, "N",
     "of --model: samples of a rank in a step", NULL},
    {"seq-length", NULL, NULL, RPI_OPTION_COUNT, FIELD(sequence), NULL, 1, 1 << 20, "N",
     "of --model: tokens of a sequence; 128 when absent, or the model's positions", NULL},
    {"image", NULL, NULL, RPI_OPTION_TEXT, FIELD(image), "1x28x28", 0, 0, "CxHxW",
     "of --model: size of images", rpi_check_image},
    {"classes", NULL, NULL, RPI_OPTION_COUNT, FIELD(classes), "10", 2, 1 << 20, "N",
     "of --model: of images", NULL},
    {"dtype", NULL, NULL, RPI_OPTION_TEXT, FIELD(dtype), "fp32", 0, 0, "TYPE",
     "of --model: fp32 or bf16, as redpoll train --dtype", NULL},
    {"optimizer", NULL, NULL, RPI_OPTION_TEXT, FIELD(optimizer), "adamw", 0, 0, "NAME",
     "of --model: whose state needs memory, too", NULL},
    {"tp", NULL, NULL, RPI_OPTION_COUNT, FIELD(tensor_ranks), "1", 1, 4096, "N",
     "of --model: ranks that share each layer, as redpoll train --tp; each rank's part", NULL},
    {"sequence-parallel", NULL, NULL, RPI_OPTION_FLAG, FIELD(sequence_parallel), NULL, 0, 0,
     NULL, "of --tp: as redpoll train --sequence-parallel", NULL},
    {"cp", NULL, NULL, RPI_OPTION_COUNT, FIELD(context_ranks), "1", 1, 4096, "N",
     "of --model: ranks that share each sequence, as redpoll train --cp; each rank's part",
     NULL},
    {"pp", NULL, NULL, RPI_OPTION_COUNT, FIELD(stages), "1", 1, RPI_PIPELINE_STAGES, "N",
     "of --model: stages, as redpoll train --pp, of which -n ranks make replicas; --batch-size "
     "is "
     "then a replica's; each stage's part, and whether all ranks fit into this host",
     NULL},
    {"schedule", NULL, NULL, RPI_OPTION_TEXT, FIELD(schedule), "1f1b", 0, 0, "NAME",
     "of --pp: as redpoll train --schedule, by name", NULL},
    {"stage-cut", NULL, NULL, RPI_OPTION_TEXT, FIELD(stage_cut), "counted", 0, 0, "HOW",
     "of --pp: counted, or the layers that stages begin with, as redpoll train --stage-cut",
     NULL},
    {"activations-codec", NULL, NULL, RPI_OPTION_TEXT, FIELD(activations_codec), NULL, 0, 0,
     "CODEC", "of --pp: as redpoll train --activations-codec", rpi_check_codec},
    {"micro-batch-size", NULL, NULL, RPI_OPTION_COUNT, FIELD(micro_batch), NULL, 1, 1 << 16,
     "N", "of --pp: samples that go through the stages together; --batch-size when absent",
     NULL},
    {"zero", NULL, NULL, RPI_OPTION_COUNT, FIELD(zero), NULL, 0, 3, "0..3",
     "of --model: as redpoll train --zero, with --ranks", NULL},
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "1", 1, 1 << 16,
                   "of --model: that share the optimizer's state, and more, by --zero"),
    {"recompute", NULL, NULL, RPI_OPTION_FLAG, FIELD(recompute), NULL, 0, 0, NULL,
     "of --model: as redpoll train --recompute", NULL},
    {"parameters", NULL, NULL, RPI_OPTION_TEXT, offsetof(settings, parameters), NULL, 0, 0,
     "MODEL", "only the number of parameters of a model; of images: for Fashion-MNIST", NULL},
    {"options", NULL, NULL, RPI_OPTION_FLAG, offsetof(settings, markdown), NULL, 0, 0, NULL,
     "every command's options, variables and YAML keys in Markdown", NULL},
    {0},
};

static void add_forms(cJSON *object) {
    rpi_kernel_form *kernel;
    for (int i = 0; (kernel = rpi_kernel_form_at(i)) != NULL; i++)
        cJSON_AddStringToObject(object, kernel->kernel,
                                kernel->names[rpi_form_for(kernel, RPI_FORM_LEAST)]);
}

static void print_json(void) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "version", rp_version());
    cJSON_AddStringToObject(object, "build", RPI_BUILD_TYPE);
    cJSON_AddStringToObject(object, "compiler", RPI_BUILD_COMPILER);
    cJSON_AddStringToObject(object, "onednn", RPI_BUILD_ONEDNN);
    cJSON_AddStringToObject(object, "openssl", RPI_BUILD_OPENSSL);
    cJSON_AddStringToObject(object, "tls", rpi_tls_is_supported() ? "1.3" : "no");
    cJSON_AddStringToObject(object, "hwloc", rpi_hwloc_version() ? rpi_hwloc_version() : "no");
    cJSON_AddStringToObject(object, "sanitizers", RPI_BUILD_SANITIZE);
    cJSON_AddStringToObject(object, "isa", rpi_isa_name(rpi_cpu_isa()));
    cJSON_AddStringToObject(object, "cpu_features", rpi_cpu_features());
    cJSON_AddNumberToObject(object, "cores", rpi_cpu_count());
    add_forms(cJSON_AddObjectToObject(object, "kernel_forms"));
    const rpi_cuda_library *cuda = NULL;
    char gpu[512];
    cJSON_AddBoolToObject(object, "cuda", rpi_cuda_open(&cuda) == RP_OK);
    cJSON_AddStringToObject(object, "cuda_summary", rpi_cuda_summary(gpu, sizeof gpu));
    const rpi_catalogue *catalogue;
    for (int c = 0; (catalogue = rpi_catalogue_at(c)) != NULL; c++) {
        cJSON *list = cJSON_AddArrayToObject(object, catalogue->title);
        rpi_entry e;
        for (int i = 0; (e = catalogue->at(i)).name; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(e.name));
    }
    rpi_command_print_json(object);
}

static void print_forms(void) {
    char text[128], line[192];
    rpi_kernel_form *kernel;
    for (int i = 0; (kernel = rpi_kernel_form_at(i)) != NULL; i++) {
        printf("  %-10s ", i ? "" : "forms");
        snprintf(line, sizeof line, "%s %s", kernel->kernel,
                 rpi_kernel_form_text(kernel, text, sizeof text));
        rpi_print_wrapped(stdout, line, 13, 13);
    }
}

static void print_entry(const rpi_entry *e) {
    printf("  %-24s ", e->name);
    rpi_print_wrapped(stdout, e->summary, 27, 27);
}

static void print_table(void) {
    char text[512];
    printf("redpoll %s\n  build      ", rp_version());
    snprintf(text, sizeof text, "%s, %s, oneDNN %s%s%s", RPI_BUILD_TYPE, RPI_BUILD_COMPILER,
             RPI_BUILD_ONEDNN, RPI_BUILD_SANITIZE[0] ? ", sanitizers " : "",
             RPI_BUILD_SANITIZE);
    rpi_print_wrapped(stdout, text, 13, 13);
    printf("  secrets    ");
    rpi_print_wrapped(stdout,
                      rpi_secret_is_supported()
                          ? "ranks prove that they have the job's (OpenSSL)"
                          : "not in this build, which has no OpenSSL: jobs are open",
                      13, 13);
    printf("  tls        ");
    snprintf(text, sizeof text, rpi_tls_is_supported() ? "1.3 (--tls), by OpenSSL %s" : "%s",
             rpi_tls_is_supported() ? rpi_tls_version()
                                    : "not in this build, which has no libssl (libssl-dev)");
    rpi_print_wrapped(stdout, text, 13, 13);
    printf("  processor  ");
    snprintf(text, sizeof text, "%d cores, kernels for %s (it has: %s)", rpi_cpu_count(),
             rpi_isa_name(rpi_cpu_isa()), rpi_cpu_features());
    rpi_print_wrapped(stdout, text, 13, 13);
    print_forms();
    printf("  cuda       ");
    rpi_print_wrapped(stdout, rpi_cuda_summary(text, sizeof text), 13, 13);
    const rpi_catalogue *catalogue;
    for (int c = 0; (catalogue = rpi_catalogue_at(c)) != NULL; c++) {
        for (const char *letter = catalogue->title; *letter; letter++)
            putchar(*letter == '_' ? ' ' : *letter);
        putchar('\n');
        rpi_entry e;
        for (int i = 0; (e = catalogue->at(i)).name; i++) print_entry(&e);
    }
}

/* Elements that have a gradient: running statistics are not among them. */
static rp_status print_parameters(const char *model) {
    rpi_data_shape shape = {
        .channels = 1, .height = 28, .width = 28, .classes = 10, .sequence = 1};
    rpi_network network = {0};
    RP_TRY(rpi_network_build(model, &shape, &network));
    printf("%lld\n",
           (long long)rpi_parameters_total(network.parameters, network.parameter_count));
    rpi_network_close(&network);
    return RP_OK;
}

static int print_model(const rpi_info_model *model) {
    rp_status status = rpi_info_model_print(model);
    if (status == RP_OK) return RPI_EXIT_DONE;
    return status == RP_INVALID ? rpi_command_misused("info", status)
                                : rpi_command_failed(status);
}

static void print_inner_options(const rpi_inner_options *inner) {
    printf("\n### --%s %s\n\nBehind the name and a colon, with commas between them; in YAML "
           "keys below the name.\n\n"
           "| option | default | meaning |\n|---|---|---|\n",
           inner->option, inner->name);
    for (const rpi_option *o = inner->table; o->name; o++)
        printf("| `%s=%s` | %s | %s |\n", o->name, o->value, o->fallback ? o->fallback : "",
               o->help);
}

static void print_options(void) {
    printf("# Options, variables and YAML keys\n\n"
           "Written by `redpoll info --options` from the tables that the commands read. Lowest "
           "first: default,\n"
           "configuration file, environment, command line. What launchers set is in "
           "docs/launching.md, what the\n"
           "PyTorch backend reads in docs/pytorch.md.\n\n"
           "## Variables that are no options\n\n"
           "| variable | values | meaning |\n|---|---|---|\n");
    const rpi_variable *variable;
    for (int i = 0; (variable = rpi_variable_at(i)) != NULL; i++)
        printf("| `%s` | %s | %s |\n", variable->name, variable->values, variable->meaning);
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        if (!command->options->name) continue;
        printf("\n## redpoll %s\n\n", command->name);
        rpi_options_markdown(command->options, stdout);
        if (command->also) printf("\nAnd the options of `redpoll %s`.\n", command->also->name);
        for (int k = 0; command->inner_at && command->inner_at(k).name; k++) {
            rpi_inner_options inner = command->inner_at(k);
            print_inner_options(&inner);
        }
    }
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = rpi_options_defaults(options, &s);
    if (status == RP_OK) status = rpi_kernel_forms_check();
    if (status == RP_OK) status = rpi_options_environment(options, getenv, &s);
    if (status == RP_OK) status = rpi_options_parse(options, argc, argv, &s, NULL, &wants_help);
    if (status != RP_OK) return rpi_command_misused("info", status);
    s.model.json = s.json;
    if (wants_help)
        rpi_command_print_help(&rpi_command_info, stdout);
    else if (s.model.model)
        return print_model(&s.model);
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
    .about =
        "What this build and this machine can do: every codec, algorithm, transport, model, "
        "data set, optimizer, learning-rate schedule, strategy, backend and topology by name. "
        "With "
        "--model what a model costs.",
    .examples = "  redpoll info --json\n  redpoll info --model gpt2:medium --batch-size 4\n  "
                "redpoll info --parameters gpt2:medium\n",
    .options = options,
    .run = run,
};
