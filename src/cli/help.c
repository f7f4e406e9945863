#include "cli/help.h"

#include "base/suggest.h"
#include "base/wrap.h"
#include "redpoll/version.h"

#include <string.h>

static const rpi_variable variables[] = {
    {"REDPOLL_LOG", "error, warning, info, debug",
     "what the library tells on standard error; warning when absent"},
    {"REDPOLL_ISA", "scalar, avx2, avx512; scalar, neon on AArch64",
     "the widest instructions that kernels use; all give the same bytes. The best of this "
     "processor when absent (redpoll info shows it)"},
    {"REDPOLL_FORMS", "KERNEL=FORM,...",
     "forms of kernels that have several, as redpoll info lists them; all give the same bytes. "
     "What a process has found to be the quickest here when absent"},
    {"REDPOLL_CUDA", "off", "no GPU is looked for; what would use one says so"},
    {"REDPOLL_CUDA_LIBRARY", "a file",
     "libredpoll_cuda.so, the kernels for GPUs; beside redpoll when absent"},
    {"REDPOLL_PORT", "a port",
     "where rank 0 serves the store when mpirun or srun started the ranks"},
    {"REDPOLL_LINKS", "BETWEEN/INSIDE",
     "what links cost, as redpoll bench link prints it: algorithms are chosen by it, on all "
     "ranks by that of rank 0; nominal costs when absent"},
    {"REDPOLL_CONNECT", "auto, start, need",
     "links between ranks are made at the start, or each when it is first needed; auto: at the "
     "start in worlds of up to 16 ranks. The same on all ranks"},
    {"REDPOLL_STREAMS", "1 to 16, the same on all ranks",
     "TCP connections of each link: for interfaces that one connection does not fill, and to "
     "use "
     "several (docs/launching.md); 1 when absent"},
    {"REDPOLL_LOST_AFTER", "a time from 1s on",
     "a host that answers nothing for so long, as one without power or cable, is lost and "
     "fails "
     "its operations; 30s when absent. Stopped and busy processes are not lost"},
    {"REDPOLL_PORTS", "FIRST-LAST",
     "the ports at which ranks and stores listen where none is given; any free ones when "
     "absent"},
    {"REDPOLL_SOCKET_IFNAME", "eth,ib; =eth0,ib0; ^docker",
     "interfaces at which ranks of several hosts listen, in NCCL's syntax: names that begin "
     "so, "
     "exactly these, or all but these; the one that faces rank 0's host when absent"},
    {"REDPOLL_SECRET", "16 letters or more, the same on all ranks",
     "the job's secret, without which nobody joins it (docs/security.md); redpoll run makes "
     "one "
     "for each job"},
    {"REDPOLL_SECRET_FILE", "a file that only its owner may read",
     "holds the job's secret, in place of REDPOLL_SECRET"},
    {"REDPOLL_TLS", "on|off, the same on all ranks",
     "encrypt all that goes by TCP (TLS 1.3), with keys from the job's secret "
     "(docs/security.md)"},
    {"REDPOLL_TOKENIZERS", "folders, separated by ':'",
     "where the files of --tokenizer gpt2, llama and bert are looked for, as FOLDER/gpt2"},
};

const rpi_variable *rpi_variable_at(int index) {
    int count = (int)(sizeof variables / sizeof variables[0]);
    return index >= 0 && index < count ? &variables[index] : NULL;
}

/* How many words of argv name this command: 0 when they do not. */
static int words_matched(const rpi_command *command, int argc, char **argv) {
    const char *space = strchr(command->name, ' ');
    if (argc < 1) return 0;
    if (!space) return strcmp(argv[0], command->name) == 0 ? 1 : 0;
    bool both =
        argc >= 2 && rpi_command_in_group(command, argv[0]) && strcmp(argv[1], space + 1) == 0;
    return both ? 2 : 0;
}

const rpi_command *rpi_command_find(int argc, char **argv, int *out_words) {
    const rpi_command *command, *found = NULL;
    *out_words = 0;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        int words = words_matched(command, argc, argv);
        if (words <= *out_words) continue; /* "plan gossip" is more than "plan" */
        *out_words = words;
        found = command;
    }
    return found;
}

bool rpi_command_exists(const char *name, int length) {
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        if (strlen(command->name) == (size_t)length &&
            strncmp(command->name, name, (size_t)length) == 0)
            return true;
    return false;
}

bool rpi_command_in_group(const rpi_command *command, const char *group) {
    size_t length = strlen(group);
    return strncmp(command->name, group, length) == 0 && command->name[length] == ' ';
}

bool rpi_command_is_group(const char *word) {
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        if (rpi_command_in_group(command, word)) return true;
    return false;
}

static void print_variables(FILE *stream) {
    fprintf(stream, "\nenvironment:\n");
    rpi_command_print_row("REDPOLL_OPTION", "any option: REDPOLL_CODEC=q4 for --codec q4",
                          stream);
    const rpi_variable *variable;
    for (int i = 0; (variable = rpi_variable_at(i)) != NULL; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s: %s", variable->values, variable->meaning);
        rpi_command_print_row(variable->name, text, stream);
    }
}

const char *rpi_command_group_summary(const char *group) {
    static const char *const groups[][2] = {
        {"bench", "time collectives and codecs, and check what they give"},
        {"data", "turn texts into tokens on disk, and look at them"},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(groups[i][0], group) == 0) return groups[i][1];
    return "several commands";
}

void rpi_help_print_all(FILE *stream) {
    fprintf(stream,
            "redpoll %s: trains neural networks over the network you have\n\n"
            "usage: redpoll COMMAND [OPTIONS]\n\n",
            rp_version());
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        rpi_command_print_row(command->name, command->summary, stream);
    print_variables(stream);
    fprintf(stream,
            "\n'redpoll help COMMAND' shows the options of a command, with examples; so "
            "does\n'redpoll COMMAND --help'.\n");
}

void rpi_help_print_group(const char *group, FILE *stream) {
    const rpi_command *command;
    fprintf(stream, "usage: redpoll %s COMMAND [OPTIONS]\n\n%s:\n\n", group,
            rpi_command_group_summary(group));
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        if (rpi_command_in_group(command, group))
            rpi_command_print_row(strchr(command->name, ' ') + 1, command->summary, stream);
    fprintf(stream, "\n'redpoll help %s COMMAND' shows the options of one, with examples.\n",
            group);
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_command *command = rpi_command_at(index);
    return command ? command->name : NULL;
}

int rpi_help_unknown(int argc, char **argv) {
    char words[128], hint[128];
    bool two = argc > 1 && argv[1][0] != '-';
    snprintf(words, sizeof words, "%s%s%s", argv[0], two ? " " : "", two ? argv[1] : "");
    const char *nearest = rpi_suggest(words, name_at, NULL);
    if (!nearest) nearest = rpi_suggest(argv[0], name_at, NULL);
    if (nearest)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", nearest);
    else if (rpi_command_is_group(argv[0]))
        snprintf(hint, sizeof hint, "; 'redpoll %s --help' lists what there is", argv[0]);
    else
        snprintf(hint, sizeof hint, "; 'redpoll --help' lists the commands");
    fprintf(stderr, "redpoll: unknown command '%s'%s\n", words, hint);
    return RPI_EXIT_USAGE;
}

int rpi_help_run(int argc, char **argv) {
    int words = 0;
    const rpi_command *command = rpi_command_find(argc, argv, &words);
    if (command)
        rpi_command_print_help(command, stdout);
    else if (argc == 0)
        rpi_help_print_all(stdout);
    else if (argc == 1 && rpi_command_is_group(argv[0]))
        rpi_help_print_group(argv[0], stdout);
    else
        return rpi_help_unknown(argc, argv);
    return RPI_EXIT_DONE;
}
