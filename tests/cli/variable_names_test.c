/* The list of environment variables (src/base/variables.c) against the tables of options and
 * the page of the manual: no option's variable is missing there. */
#include "base/variables.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "harness/check.h"

#include <string.h>

static bool is_known(const char *variable) {
    for (int i = 0; rpi_variable_name(i); i++)
        if (strcmp(rpi_variable_name(i), variable + strlen("REDPOLL_")) == 0) return true;
    return false;
}

static void options_are_known(void) {
    for (int i = 0; rpi_command_at(i); i++) {
        const rpi_option *option = rpi_command_at(i)->options;
        for (; option && option->name; option++) {
            char text[96];
            rpi_option_variable(option, text, sizeof text);
            CHECK_MSG(is_known(text), "%s is missing in src/base/variables.c", text);
        }
    }
    for (int i = 0; rpi_variable_at(i); i++)
        CHECK_MSG(is_known(rpi_variable_at(i)->name), "%s is missing in src/base/variables.c",
                  rpi_variable_at(i)->name);
}

static void names_are_in_order(void) {
    for (int i = 1; rpi_variable_name(i); i++)
        CHECK_MSG(strcmp(rpi_variable_name(i - 1), rpi_variable_name(i)) < 0,
                  "%s stands behind %s", rpi_variable_name(i), rpi_variable_name(i - 1));
}

CASES({"options are known", options_are_known}, {"names are in order", names_are_in_order})
