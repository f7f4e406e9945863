/* `redpoll man`: manual pages, written from what commands say of themselves. The build runs it.
 */
#include "cli/commands.h"

#include "base/status.h"
#include "cli/help.h"
#include "redpoll/version.h"

#include <string.h>

static const rpi_option options[] = {{0}};

/* ---- roff ---- */

/* Text in which characters with a meaning in roff are masked; a line of the source stays one.
 */
static void print_text(const char *text, size_t length) {
    bool line_starts = true;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (line_starts && (c == '.' || c == '\'')) printf("\\&");
        line_starts = c == '\n';
        if (c == '\\')
            printf("\\e");
        else if (c == '-')
            printf("\\-");
        else
            putchar(c);
    }
}

static void print_line(const char *text) {
    print_text(text, strlen(text));
    putchar('\n');
}

/* Paragraphs between empty lines, behind the title of a section. */
static void print_paragraphs(const char *text) {
    for (;;) {
        const char *end = strstr(text, "\n\n");
        print_text(text, end ? (size_t)(end - text) : strlen(text));
        putchar('\n');
        if (!end) return;
        printf(".PP\n");
        text = end + 2;
    }
}

static void print_section(const char *title) {
    printf(".SH %s\n", title);
}

/* "redpoll-bench-gather" of "bench gather"; "redpoll" of "". */
static const char *page_name(const char *command, char text[64]) {
    snprintf(text, 64, "redpoll%s%s", *command ? "-" : "", command);
    for (char *c = text; *c; c++)
        if (*c == ' ') *c = '-';
    return text;
}

static void print_title(const char *command, const char *summary) {
    char page[64];
    page_name(command, page);
    printf(".TH \"");
    for (const char *c = page; *c; c++) putchar(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    printf("\" \"1\" \"\" \"redpoll %s\" \"Redpoll\"\n", rp_version());
    print_section("NAME");
    print_text(page, strlen(page));
    printf(" \\- ");
    print_line(summary);
}

/* ---- the parts of a page ---- */

static void print_bold(const char *text) {
    printf("\\fB");
    print_text(text, strlen(text));
    printf("\\fR");
}

static void print_option(const rpi_option *option) {
    char text[256];
    printf(".TP\n");
    if (option->alias) {
        snprintf(text, sizeof text, "-%s", option->alias);
        print_bold(text);
        printf(", ");
    }
    snprintf(text, sizeof text, "--%s", option->name);
    print_bold(text);
    if (option->value) {
        printf(" \\fI");
        print_text(option->value, strlen(option->value));
        printf("\\fR");
    }
    putchar('\n');
    print_text(option->help, strlen(option->help));
    if (option->fallback) {
        printf(".\nDefault: ");
        print_text(option->fallback, strlen(option->fallback));
    }
    printf(".\nVariable: ");
    rpi_option_variable(option, text, sizeof text);
    print_text(text, strlen(text));
    if (option->yaml) {
        printf("; YAML key: ");
        print_text(option->yaml, strlen(option->yaml));
    }
    printf(".\n");
}

static void print_options(const rpi_option *table) {
    if (!table->name) return;
    print_section("OPTIONS");
    for (const rpi_option *option = table; option->name; option++) print_option(option);
}

static void print_inner(const rpi_inner_options *inner) {
    char text[256];
    snprintf(text, sizeof text, "OPTIONS OF --%s %s", inner->option, inner->name);
    print_section(text);
    for (const rpi_option *option = inner->table; option->name; option++) {
        printf(".TP\n");
        snprintf(text, sizeof text, "%s=%s", option->name, option->value);
        print_bold(text);
        putchar('\n');
        print_line(option->help);
        if (!option->fallback) continue;
        printf("Default: ");
        print_line(option->fallback);
    }
}

static void print_variables(void) {
    const rpi_variable *variable;
    print_section("ENVIRONMENT");
    printf("Every option has a variable, named with it; the command line wins.\n");
    for (int i = 0; (variable = rpi_variable_at(i)) != NULL; i++) {
        printf(".TP\n");
        print_bold(variable->name);
        putchar('\n');
        print_text(variable->values, strlen(variable->values));
        printf(":\n");
        print_text(variable->meaning, strlen(variable->meaning));
        printf(".\n");
    }
}

static void print_exit_codes(void) {
    print_section("EXIT STATUS");
    printf(".TP\n0\nDone.\n.TP\n1\nSomething failed; standard error says what.\n"
           ".TP\n2\nA mistake in the words of the command.\n");
}

static void print_examples(const char *examples) {
    print_section("EXAMPLES");
    printf(".nf\n");
    print_text(examples, strlen(examples));
    printf(".fi\n");
}

static void print_see_also(const char *const *pages, int count) {
    print_section("SEE ALSO");
    for (int i = 0; i < count; i++) {
        print_bold(pages[i]);
        printf(i + 1 < count ? "(1),\n" : "(1)\n");
    }
}

/* ---- pages ---- */

static void print_command(const rpi_command *command) {
    const char *above[] = {"redpoll"};
    print_title(command->name, command->summary);
    print_section("SYNOPSIS");
    printf("\\fBredpoll %s\\fR ", command->name);
    print_line(command->words ? command->words : "[OPTIONS]");
    print_section("DESCRIPTION");
    print_paragraphs(command->about);
    print_options(command->options);
    if (command->also)
        printf(".PP\nAnd the options of \\fBredpoll %s\\fR(1).\n", command->also->name);
    for (int i = 0; command->inner_at && command->inner_at(i).name; i++) {
        rpi_inner_options inner = command->inner_at(i);
        print_inner(&inner);
    }
    if (command->notes) {
        print_section("NOTES");
        print_paragraphs(command->notes);
    }
    print_exit_codes();
    print_examples(command->examples);
    print_see_also(above, 1);
}

/* The commands of a group, or all when there is none. */
static void print_list(const char *group) {
    const rpi_command *command;
    char page[64];
    print_section("COMMANDS");
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        if (*group && !rpi_command_in_group(command, group)) continue;
        printf(".TP\n");
        print_bold(page_name(command->name, page));
        printf("(1)\n");
        print_line(command->summary);
    }
}

static void print_overview(const char *group) {
    const char *above[] = {"redpoll"};
    if (*group)
        print_title(group, rpi_command_group_summary(group));
    else
        print_title("", "trains neural networks over the network you have");
    print_section("SYNOPSIS");
    printf("\\fBredpoll %s%sCOMMAND\\fR [OPTIONS]\n", group, *group ? " " : "");
    print_list(group);
    if (*group) {
        print_see_also(above, 1);
        return;
    }
    print_variables();
    print_exit_codes();
}

/* ---- the command ---- */

/* The groups that commands stand in, each once, but those that are commands and have pages as
 * such; NULL past the end. */
static const char *group_at(int index, char text[32]) {
    const rpi_command *command, *before = NULL;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; before = command, i++) {
        const char *space = strchr(command->name, ' ');
        if (!space || rpi_command_exists(command->name, (int)(space - command->name))) continue;
        snprintf(text, 32, "%.*s", (int)(space - command->name), command->name);
        if ((!before || !rpi_command_in_group(before, text)) && index-- == 0) return text;
    }
    return NULL;
}

static void print_names(void) {
    const rpi_command *command;
    char page[64], group[32];
    printf("redpoll\n");
    for (int i = 0; group_at(i, group); i++) printf("%s\n", page_name(group, page));
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        printf("%s\n", page_name(command->name, page));
}

static rp_status print_page(const char *name) {
    const rpi_command *command;
    char page[64], group[32];
    if (!name) return print_names(), RP_OK;
    if (strcmp(name, "redpoll") == 0) return print_overview(""), RP_OK;
    for (int i = 0; group_at(i, group); i++)
        if (strcmp(name, page_name(group, page)) == 0) return print_overview(group), RP_OK;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        if (strcmp(name, page_name(command->name, page)) == 0)
            return print_command(command), RP_OK;
    return RP_FAIL(INVALID, "no page '%s'; 'redpoll man' names them all", name);
}

static int run(int argc, char **argv) {
    return rpi_command_print(&rpi_command_man, argc, argv, print_page);
}

const rpi_command rpi_command_man = {
    .name = "man",
    .summary = "print a manual page, or the names of all",
    .words = "[PAGE]",
    .about =
        "Prints a manual page in roff, as it is installed; without a word the names of all "
        "pages: redpoll, redpoll-train, redpoll-bench-all-reduce and so on.",
    .examples = "  redpoll man redpoll-train | man -l -\n",
    .options = options,
    .run = run,
};
