/* Lists of hosts: what is written becomes which hosts, and what is wrong is named. */
#include "cli/hosts/host_list.h"

#include "harness/check.h"

#include <stdio.h>
#include <string.h>

/* "big:4 small:1" */
static const char *shown(const rpi_host_list *list) {
    static char text[1024];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%d", i ? " " : "",
                                 list->hosts[i].name, list->hosts[i].slots);
    return text;
}

/* NULL hosts: an error that holds `words`. */
static void check_list(rpi_host_list *list, rp_status status, const char *text,
                       const char *hosts, const char *words) {
    if (hosts) {
        CHECK_MSG(status == RP_OK, "'%s': %s", text, rp_last_error()->message);
        CHECK_MSG(strcmp(shown(list), hosts) == 0, "'%s' is %s, not %s", text, shown(list),
                  hosts);
    } else {
        CHECK_MSG(status == RP_INVALID, "'%s' is accepted: %s", text, shown(list));
        CHECK_MSG(strstr(rp_last_error()->message, words), "'%s': %s", text,
                  rp_last_error()->message);
    }
    rpi_host_list_free(list);
}

static void words(void) {
    static const struct {
        const char *text, *hosts, *says;
    } cases[] = {
        {"big", "big:1", NULL},
        {"big:4,small:4", "big:4 small:4", NULL},
        {"big,small,big", "big:2 small:1", NULL},
        {"user@big:2", "user@big:2", NULL},
        {"10.0.0.1:2,fe80::1", "10.0.0.1:2 fe80::1:1", NULL},
        {"[fe80::1]:3,[::1]", "fe80::1:3 ::1:1", NULL},
        {"big:0", NULL, "0 slots; 1 to 1024"},
        {"big:2000", NULL, "2000 slots"},
        {"big:600,big:600", NULL, "1200 slots"},
        {"big:four", NULL, "'four' is no number"},
        {"big:-1", NULL, "'-1' is no number"},
        {"big:", NULL, "'' is no number"},
        {"", NULL, "empty word"},
        {"big,,small", NULL, "empty word"},
        {"big,", NULL, "empty word"},
        {"-oProxyCommand=id", NULL, "begins with '-'"},
        {"big small", NULL, "a blank"},
        {":4", NULL, "no host's name"},
        {"[::1]4", NULL, "neither HOST"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_host_list list = {0};
        rp_status status = rpi_host_list_add_words(&list, cases[i].text);
        check_list(&list, status, cases[i].text, cases[i].hosts, cases[i].says);
    }
}

static void files(void) {
    static const struct {
        const char *text, *hosts, *says;
    } cases[] = {
        {"big slots=4\nsmall slots=2 max_slots=8\n", "big:4 small:2", NULL},
        {"# all of them\n\n  big:4   # the big one\r\nsmall\n", "big:4 small:1", NULL},
        {"n1\nn1\nn2\nn1", "n1:3 n2:1", NULL},
        {"fe80::1 slots=2\n", "fe80::1:2", NULL},
        {"big\nsmall slots=x\n", NULL, "line 2: 'x' is no number"},
        {"big cpus=3\n", NULL, "line 1: 'cpus=3' is not known"},
        {"# nothing\n", NULL, "names no host"},
    };
    char path[300];
    snprintf(path, sizeof path, "%s/hosts", check_folder());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_host_list list = {0};
        FILE *file = fopen(path, "w");
        CHECK(file && fputs(cases[i].text, file) >= 0);
        fclose(file);
        rp_status status = rpi_host_list_add_file(&list, path);
        check_list(&list, status, cases[i].text, cases[i].hosts, cases[i].says);
    }
    rpi_host_list list = {0};
    check_list(&list, rpi_host_list_add_file(&list, "/no/such/file"), "no file", NULL,
               "cannot open the list of hosts /no/such/file");
}

static void slurm(void) {
    static const struct {
        const char *nodes, *tasks, *hosts, *says;
    } cases[] = {
        {"n1", NULL, "n1:1", NULL},
        {"n[1-3]", "2(x2),1", "n1:2 n2:2 n3:1", NULL},
        {"n[08-10,12],gpu-a", "4(x5)", "n08:4 n09:4 n10:4 n12:4 gpu-a:4", NULL},
        {"r[1-2]n[1-2]x", "1,2,3,4", "r1n1x:1 r1n2x:2 r2n1x:3 r2n2x:4", NULL},
        {"a,b[3]", "2,2", "a:2 b3:2", NULL},
        {"n[1-2", "1(x2)", NULL, "no ']'"},
        {"n[2-1]", "1(x2)", NULL, "'2-1' is no range"},
        {"n[]", "1", NULL, "'' is no range"},
        {"n[1-999999999]", "1", NULL, "no range"},
        {"n[1-3]", "2(x2)", NULL, "does not say how many"},
        {"n1", "0", NULL, "does not say how many"},
        {"n1", "2(x", NULL, "does not say how many"},
        {"", "1", NULL, "no host's name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_host_list list = {0};
        rp_status status = rpi_host_list_add_slurm(&list, cases[i].nodes, cases[i].tasks);
        check_list(&list, status, cases[i].nodes, cases[i].hosts, cases[i].says);
    }
}

static void fewer_ranks(void) {
    static const struct {
        int ranks;
        const char *hosts, *says;
    } cases[] = {
        {1, "a:1", NULL},
        {2, "a:2", NULL},
        {3, "a:2 b:1", NULL},
        {5, "a:2 b:3", NULL},
        {6, NULL, "give them more, as in -H a:3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_host_list list = {0};
        CHECK_OK(rpi_host_list_add_words(&list, "a:2,b:3"));
        rp_status status = rpi_host_list_limit(&list, cases[i].ranks);
        check_list(&list, status, "a:2,b:3", cases[i].hosts, cases[i].says);
    }
}

CASES({"words", words}, {"files", files}, {"slurm", slurm}, {"fewer_ranks", fewer_ranks})
