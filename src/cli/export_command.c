/* `redpoll export`: the model of a run as a folder that other software opens. */
#include "cli/commands.h"

#include "base/status.h"
#include "train/huggingface/hf_export.h"

#include <string.h>

typedef struct settings {
    const char *from, *to;
    bool overwrite;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"model", "from", NULL, RPI_OPTION_TEXT, FIELD(from), NULL, 0, 0, "RUN",
     "the folder of a run, that redpoll train --out was given", NULL},
    {"to", NULL, NULL, RPI_OPTION_TEXT, FIELD(to), NULL, 0, 0, "hf:FOLDER",
     "the folder to make, in Hugging Face's layout", NULL},
    {"overwrite", NULL, NULL, RPI_OPTION_FLAG, FIELD(overwrite), NULL, 0, 0, NULL,
     "replace files in a folder that holds something", NULL},
    {0},
};

static rp_status check(const settings *s) {
    if (!s->from) return RP_FAIL(INVALID, "which run? --model RUN, the folder of its results");
    if (!s->to) return RP_FAIL(INVALID, "where to? --to hf:FOLDER");
    if (strncmp(s->to, "hf:", 3) != 0 || !s->to[3])
        return RP_FAIL(INVALID, "--to: '%s' is not like hf:FOLDER, the only layout there is",
                       s->to);
    return RP_OK;
}

static rp_status export_run(void *of_command) {
    const settings *s = of_command;
    rpi_hf_exported done;
    RP_TRY(check(s));
    RP_TRY(rpi_hf_export(s->from, s->to + 3, s->overwrite, &done));
    printf("%s of %lld parameters after %lld steps%s is in %s\n", done.architecture,
           (long long)done.parameters, (long long)done.step,
           done.has_tokenizer ? ", with its tokenizer," : "", s->to + 3);
    if (done.note[0]) fprintf(stderr, "redpoll: note: %s\n", done.note);
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_export, argc, argv, &s, NULL, export_run);
}

const rpi_command rpi_command_export = {
    .name = "export",
    .summary = "the model of a run as a Hugging Face folder",
    .about =
        "Writes the newest checkpoint of a run as config.json and model.safetensors, under the "
        "names that transformers has for its model, with tokenizer.json where the run's data "
        "have one. transformers opens the folder as it is. Models that have such names: gpt2, "
        "llama, bert. "
        "The folder is there when it is whole, or not at all.",
    .examples = "  redpoll export --model runs/kjv --to hf:out/kjv\n"
                "  redpoll export --model runs/kjv --to hf:out/kjv --overwrite\n",
    .options = options,
    .run = run,
};
