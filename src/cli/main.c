/* The command `redpoll`: finds the subcommand and hands over. */
#include "cli/command.h"

#include "base/suggest.h"
#include "redpoll/version.h"

#include <stdio.h>
#include <string.h>

static void print_help(FILE *stream) {
    fprintf(stream,
            "redpoll %s: trains neural networks over the network you have\n\n"
            "usage: redpoll COMMAND [OPTIONS]\n\n",
            rp_version());
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        fprintf(stream, "  %-18s %s\n", command->name, command->summary);
    fprintf(stream,
            "\n'redpoll COMMAND --help' shows the options of a command, with examples.\n");
}

/* How many words of argv name this command: 0 when they do not. */
static int words_matched(const rpi_command *command, int argc, char **argv) {
    const char *space = strchr(command->name, ' ');
    if (!space) return argc >= 2 && strcmp(argv[1], command->name) == 0 ? 1 : 0;
    size_t first = (size_t)(space - command->name);
    return argc >= 3 && strlen(argv[1]) == first &&
                   strncmp(argv[1], command->name, first) == 0 &&
                   strcmp(argv[2], space + 1) == 0
               ? 2
               : 0;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_command *command = rpi_command_at(index);
    return command ? command->name : NULL;
}

static int unknown_command(int argc, char **argv) {
    char words[128], hint[128];
    snprintf(words, sizeof words, "%s%s%s", argv[1], argc > 2 && argv[2][0] != '-' ? " " : "",
             argc > 2 && argv[2][0] != '-' ? argv[2] : "");
    const char *nearest = rpi_suggest(words, name_at, NULL);
    if (!nearest) nearest = rpi_suggest(argv[1], name_at, NULL);
    if (nearest)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", nearest);
    else
        snprintf(hint, sizeof hint, "; 'redpoll --help' lists the commands");
    fprintf(stderr, "redpoll: unknown command '%s'%s\n", words, hint);
    return RPI_EXIT_USAGE;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return RPI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return RPI_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("redpoll %s\n", rp_version());
        return RPI_EXIT_DONE;
    }
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        int words = words_matched(command, argc, argv);
        if (words) return command->run(argc - words, argv + words);
    }
    return unknown_command(argc, argv);
}
