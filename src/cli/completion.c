/* `redpoll completion SHELL`: what a shell needs to complete words of `redpoll`, written from
 * the tables of the commands. The build runs it. */
#include "cli/commands.h"

#include "base/status.h"
#include "base/suggest.h"
#include "cli/catalogues.h"
#include "cli/help.h"

#include <string.h>

enum { CHOICES_BYTES = 1024 };

static const rpi_option options[] = {{0}};

static bool takes_value(const rpi_option *option) {
    return option->type != RPI_OPTION_FLAG || option->value;
}

static bool is_file(const rpi_option *option) {
    return option->value &&
           (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "FOLDER") == 0);
}

/* The word behind a command's name, or behind its group's: "gather" of "bench gather". */
static const char *last_word(const rpi_command *command) {
    const char *space = strchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

/* The length of the first word of a command's group, if it is the first command of that group;
 * 0: it has none, or the group was there before. Commands of a group are neighbours. */
static int begins_group(const rpi_command *command, const rpi_command *previous) {
    int length = (int)strcspn(command->name, " ");
    if (!command->name[length]) return 0;
    bool again = previous && strncmp(previous->name, command->name, (size_t)length + 1) == 0;
    return again ? 0 : length;
}

/* Words that may follow "redpoll": commands of one word, each group once, and `help`. */
static void print_first_words(const char *before, const char *after) {
    const rpi_command *command, *previous = NULL;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; previous = command, i++) {
        int length = (int)strcspn(command->name, " ");
        bool again = previous && (int)strcspn(previous->name, " ") == length &&
                     strncmp(previous->name, command->name, (size_t)length) == 0;
        if (!again) printf("%s%.*s%s", before, length, command->name, after);
    }
    printf("%shelp%s", before, after);
}

/* Text inside of '...' of a shell. */
static void print_quoted(const char *text) {
    for (; *text; text++) printf(*text == '\'' ? "'\\%c'" : "%c", *text);
}

/* ---- bash ---- */

/* "train -n", "run -n" ...: one letter may mean different things to different commands. */
static void print_bash_aliases(const rpi_option *option) {
    const rpi_command *command;
    const rpi_option *o;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        for (int k = 0; (o = rpi_command_option_at(command, k)) != NULL; k++)
            if (o->alias && strcmp(o->name, option->name) == 0)
                printf("|'%s -%s'", command->name, o->alias);
}

/* One case for each value-taking option of any table; a long name means the same everywhere. */
static void print_bash_values(void) {
    char seen[4096] = " ", choices[CHOICES_BYTES], name[80];
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        for (const rpi_option *o = command->options; o->name; o++) {
            snprintf(name, sizeof name, " %s ", o->name);
            if (!takes_value(o) || strstr(seen, name)) continue;
            strncat(seen, name + 1, sizeof seen - strlen(seen) - 1);
            printf("    *' --%s'", o->name);
            print_bash_aliases(o);
            if (is_file(o))
                printf(") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "
                       "\"$cur\")); return ;;\n");
            else
                printf(") words='%s' takes_value=1 ;;\n",
                       rpi_option_choices(o, choices, sizeof choices));
        }
}

static void print_bash_options(const rpi_command *command) {
    const rpi_option *o;
    printf("    '%s') words='", command->name);
    for (int k = 0; (o = rpi_command_option_at(command, k)) != NULL; k++) {
        printf("--%s ", o->name);
        if (o->alias) printf("-%s ", o->alias);
        if (!takes_value(o)) printf("--no-%s ", o->name);
    }
    printf("--help");
    for (int i = 0; command->word_at && command->word_at(i); i++)
        printf(" %s", command->word_at(i));
    printf("' ;;\n");
}

static bool is_of_group(const rpi_command *command, const rpi_command *first, int length) {
    return strncmp(command->name, first->name, (size_t)length + 1) == 0;
}

/* The second word after a command that begins a group: its own words, and those of the group,
 * each of which makes another command. */
static void print_bash_second_word(const rpi_command *first, int length) {
    const rpi_command *member;
    printf("    if [[ $command == %.*s && $COMP_CWORD -gt $((at + 1)) ]]; then\n"
           "        case ${COMP_WORDS[at+1]} in\n",
           length, first->name);
    for (int k = 0; (member = rpi_command_at(k)) != NULL; k++)
        if (is_of_group(member, first, length))
            printf("        %s) command='%s' ;;\n", last_word(member), member->name);
    printf("        esac\n"
           "    fi\n");
}

/* The second words of each group. */
static void print_bash_groups(void) {
    const rpi_command *command, *previous = NULL, *member;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; previous = command, i++) {
        int length = begins_group(command, previous);
        if (length == 0) continue;
        if (rpi_command_exists(command->name, length)) {
            print_bash_second_word(command, length);
            continue;
        }
        printf("    if [[ $command == %.*s ]]; then\n"
               "        if [[ $COMP_CWORD -eq $((at + 1)) ]]; then\n"
               "            COMPREPLY=($(compgen -W '",
               length, command->name);
        for (int k = i; (member = rpi_command_at(k)) != NULL; k++)
            if (is_of_group(member, command, length)) printf("%s ", last_word(member));
        printf("--help' -- \"$cur\"))\n"
               "            return\n"
               "        fi\n"
               "        command=\"%.*s ${COMP_WORDS[at+1]}\"\n"
               "    fi\n",
               length, command->name);
    }
}

static void print_bash(void) {
    const rpi_command *command;
    printf("# Completion of redpoll for bash, written by `redpoll completion bash`.\n"
           "_redpoll() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local at=1 command words='' takes_value=''\n"
           "    # bash takes --link=1Gbit for three words\n"
           "    if [[ $cur == = ]]; then cur=''\n"
           "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "    COMPREPLY=()\n"
           "    [[ ${COMP_WORDS[1]} == help && $COMP_CWORD -gt 1 ]] && at=2\n"
           "    if [[ $COMP_CWORD -eq $at ]]; then\n"
           "        COMPREPLY=($(compgen -W '");
    print_first_words("", " ");
    printf("--help --version' -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    command=${COMP_WORDS[at]}\n");
    print_bash_groups();
    printf("    [[ $at -eq 2 ]] && return\n"
           "    case \"$command $prev\" in\n");
    print_bash_values();
    printf("    esac\n"
           "    if [[ -z $takes_value ]]; then\n"
           "    case $command in\n");
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) print_bash_options(command);
    printf("    esac\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "    if [[ $command == run && $cur != -* && -z $takes_value ]]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        COMPREPLY=($(compgen -c -f -- \"$cur\"))\n"
           "    fi\n"
           "}\n"
           "complete -F _redpoll redpoll\n");
}

/* ---- zsh ---- */

/* Inside of _arguments' '[...]'. */
static void print_zsh_help(const char *text) {
    for (; *text; text++) {
        if (*text == '[' || *text == ']' || *text == ':' || *text == '\\') putchar('\\');
        printf(*text == '\'' ? "'\\%c'" : "%c", *text);
    }
}

static void print_zsh_value(const rpi_option *option) {
    char choices[CHOICES_BYTES];
    if (!takes_value(option)) return;
    printf(":");
    print_zsh_help(option->value);
    if (is_file(option)) {
        printf(":_files");
        return;
    }
    rpi_option_choices(option, choices, sizeof choices);
    printf(":(%s)", choices);
}

static void print_zsh_spelling(const rpi_option *option, const char *spelling) {
    bool takes = takes_value(option);
    printf("            '%s%s[", spelling, !takes ? "" : spelling[1] == '-' ? "=" : "+");
    print_zsh_help(option->help);
    printf("]");
    print_zsh_value(option);
    printf("' \\\n");
}

static void print_zsh_command(const rpi_command *command) {
    char spelling[80];
    const rpi_option *o;
    printf("        '%s') _arguments \\\n", command->name);
    for (int k = 0; (o = rpi_command_option_at(command, k)) != NULL; k++) {
        snprintf(spelling, sizeof spelling, "--%s", o->name);
        print_zsh_spelling(o, spelling);
        if (!o->alias) continue;
        snprintf(spelling, sizeof spelling, "-%s", o->alias);
        print_zsh_spelling(o, spelling);
    }
    if (command->word_at) {
        printf("            '1:word:(");
        for (int i = 0; command->word_at(i); i++) printf("%s ", command->word_at(i));
        printf(")' \\\n");
    }
    if (strcmp(command->name, "run") == 0) printf("            '*::program:_normal' \\\n");
    printf("            '--help[show the usage]' ;;\n");
}

static void print_zsh_second_word(const rpi_command *first, int length) {
    const rpi_command *member;
    for (int k = 0; (member = rpi_command_at(k)) != NULL; k++)
        if (is_of_group(member, first, length))
            printf(
                "    if [[ $command == %.*s && $words[3] == %s ]] && (( CURRENT > 3 )); then\n"
                "        command='%s'\n"
                "        words[2]=()\n"
                "        (( CURRENT-- ))\n"
                "    fi\n",
                length, first->name, last_word(member), member->name);
}

static void print_zsh_groups(void) {
    const rpi_command *command, *previous = NULL, *member;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; previous = command, i++) {
        int length = begins_group(command, previous);
        if (length == 0) continue;
        if (rpi_command_exists(command->name, length)) {
            print_zsh_second_word(command, length);
            continue;
        }
        printf("    if [[ $command == %.*s ]]; then\n"
               "        if (( CURRENT == 3 )); then\n"
               "            local -a members=(\n",
               length, command->name);
        for (int k = i; (member = rpi_command_at(k)) != NULL; k++) {
            if (!is_of_group(member, command, length)) continue;
            printf("                '%s:", last_word(member));
            print_zsh_help(member->summary);
            printf("'\n");
        }
        printf("            )\n"
               "            _describe command members\n"
               "            return\n"
               "        fi\n"
               "        command=\"%.*s $words[3]\"\n"
               "        words[2]=()\n"
               "        (( CURRENT-- ))\n"
               "    fi\n",
               length, command->name);
    }
}

static void print_zsh(void) {
    const rpi_command *command;
    printf("#compdef redpoll\n"
           "# Completion of redpoll for zsh, written by `redpoll completion zsh`.\n"
           "_redpoll() {\n"
           "    local command\n"
           "    if [[ $words[2] == help && CURRENT -gt 2 ]]; then\n"
           "        words[2]=()\n"
           "        (( CURRENT-- ))\n"
           "    fi\n"
           "    if (( CURRENT == 2 )); then\n"
           "        compadd -- ");
    print_first_words("", " ");
    printf("--help --version\n"
           "        return\n"
           "    fi\n"
           "    command=$words[2]\n");
    print_zsh_groups();
    printf("    words[1]=()\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n");
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) print_zsh_command(command);
    printf("    esac\n"
           "}\n"
           "if [[ $funcstack[1] == _redpoll ]]; then _redpoll \"$@\"; else compdef _redpoll "
           "redpoll; "
           "fi\n");
}

/* ---- fish ---- */

static void print_fish_option(const rpi_command *command, const rpi_option *option) {
    char choices[CHOICES_BYTES];
    printf("complete -c redpoll -n '__redpoll_is %s' -l %s", command->name, option->name);
    if (option->alias) printf(" -s %s", option->alias);
    if (takes_value(option)) {
        rpi_option_choices(option, choices, sizeof choices);
        if (is_file(option))
            printf(" -r -F");
        else if (*choices)
            printf(" -x -a '%s'", choices);
        else
            printf(" -x");
    }
    printf(" -d '");
    print_quoted(option->help);
    printf("'\n");
}

static void print_fish(void) {
    const rpi_command *command;
    const rpi_option *o;
    printf("# Completion of redpoll for fish, written by `redpoll completion fish`.\n"
           "function __redpoll_is\n"
           "    set -l words (commandline -opc)\n"
           "    test (count $words) -gt (count $argv); or return 1\n"
           "    set -l last (math 1 + (count $argv))\n"
           "    test \"$words[2..$last]\" = \"$argv\"\n"
           "end\n"
           "function __redpoll_stands_alone\n"
           "    test (count (commandline -opc)) -eq $argv[1]\n"
           "end\n"
           "complete -c redpoll -f\n"
           "complete -c redpoll -n '__redpoll_stands_alone 1' -a '");
    print_first_words("", " ");
    printf("--help --version'\n");
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        if (last_word(command) != command->name) {
            printf("complete -c redpoll -n '__redpoll_is %.*s; and __redpoll_stands_alone 2' "
                   "-a %s -d '",
                   (int)strcspn(command->name, " "), command->name, last_word(command));
            print_quoted(command->summary);
            printf("'\n");
        }
        for (int k = 0; (o = rpi_command_option_at(command, k)) != NULL; k++)
            print_fish_option(command, o);
        for (int k = 0; command->word_at && command->word_at(k); k++)
            printf("complete -c redpoll -n '__redpoll_is %s' -a %s\n", command->name,
                   command->word_at(k));
    }
    printf("complete -c redpoll -n '__redpoll_is run' -F\n");
    printf("complete -c redpoll -n '__redpoll_is help; and __redpoll_stands_alone 2' -a '");
    print_first_words("", " ");
    printf("'\n");
}

/* ---- the command ---- */

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
enum { SHELLS = sizeof shells / sizeof shells[0] };

static const char *shell_at(int index) {
    return index < SHELLS ? shells[index].name : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return shell_at(index);
}

static rp_status print_shell(const char *name) {
    char hint[64];
    if (!name) return RP_FAIL(INVALID, "of which shell? bash, zsh or fish");
    for (int i = 0; i < SHELLS; i++)
        if (strcmp(name, shells[i].name) == 0) return shells[i].print(), RP_OK;
    return RP_FAIL(INVALID, "no completion for '%s'; there are bash, zsh, fish%s", name,
                   rpi_suggest_text(name, name_at, NULL, hint, sizeof hint));
}

static int run(int argc, char **argv) {
    return rpi_command_print(&rpi_command_completion, argc, argv, print_shell);
}

const rpi_command rpi_command_completion = {
    .name = "completion",
    .summary = "print the completion of a shell: bash, zsh or fish",
    .words = "SHELL",
    .about = "Prints what bash, zsh or fish needs to complete words of redpoll. An installed "
             "redpoll has brought these files already.",
    .examples = "  source <(redpoll completion bash)\n"
                "  redpoll completion zsh >~/.zfunc/_redpoll\n"
                "  redpoll completion fish >~/.config/fish/completions/redpoll.fish\n",
    .options = options,
    .word_at = shell_at,
    .run = run,
};
