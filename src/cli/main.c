/* The command `redpoll`: finds the subcommand and hands over. */
#include "cli/file_limit.h"
#include "cli/help.h"

#include "base/variables.h"
#include "redpoll/version.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A closed standard stream would lend its number to the next file that is opened, and printed
 * text would go into that file. This opens files in their place, which are not used. */
static void occupy_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static bool asks_for_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static int run_group(int argc, char **argv) {
    bool asks = argc > 1 && asks_for_help(argv[1]);
    if (argc > 1 && !asks) return rpi_help_unknown(argc, argv);
    rpi_help_print_group(argv[0], asks ? stdout : stderr);
    return asks ? RPI_EXIT_DONE : RPI_EXIT_USAGE;
}

/* argv[0...]: the words after "redpoll". */
static int run(int argc, char **argv) {
    int words = 0;
    if (argc < 1) {
        rpi_help_print_all(stderr);
        return RPI_EXIT_USAGE;
    }
    if (asks_for_help(argv[0])) return rpi_help_run(argc - 1, argv + 1);
    if (strcmp(argv[0], "--version") == 0) {
        printf("redpoll %s\n", rp_version());
        return RPI_EXIT_DONE;
    }
    const rpi_command *command = rpi_command_find(argc, argv, &words);
    if (command) return command->run(argc - words + 1, argv + words - 1);
    if (rpi_command_is_group(argv[0])) return run_group(argc, argv);
    return rpi_help_unknown(argc, argv);
}

int main(int argc, char **argv) {
    occupy_standard_streams();
    rpi_file_limit_heed();
    if (!getenv("REDPOLL_STORE")) rpi_variables_check_own(); /* else the launcher has */
    return rpi_command_finish(run(argc - 1, argv + 1));
}
