#include "cli/bind_ranks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES_MAX = 1024 };

static const char *const names[] = {"none", "core", "socket", "numa"};
enum { NAMES = sizeof names / sizeof names[0] };

rp_status rpi_binding_find(const char *name, rpi_binding *out_binding) {
    for (int i = 0; i < NAMES; i++)
        if (strcmp(names[i], name) == 0) return *out_binding = (rpi_binding)i, RP_OK;
    return RP_FAIL(INVALID, "'%s' is not known; none, core, socket or numa", name);
}

rp_status rpi_binding_check(const char *name) {
    rpi_binding binding;
    return rpi_binding_find(name, &binding);
}

/* ---- shares ---- */

static bool is_together(rpi_binding binding, const rpi_processor *a, const rpi_processor *b) {
    if (binding == RPI_BIND_NUMA) return a->node == b->node;
    return a->socket == b->socket && (binding == RPI_BIND_SOCKET || a->core == b->core);
}

/* groups[i]: which core, socket or node processor i is of, numbered by first appearance. */
static int number_groups(rpi_binding binding, const rpi_processor *processors, int count,
                         int *groups) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        int first = 0;
        while (!is_together(binding, &processors[first], &processors[i])) first++;
        groups[i] = first < i ? groups[first] : found++;
    }
    return found;
}

rp_status rpi_bind_choose(rpi_binding binding, const rpi_processor *processors, int count,
                          int rank, int ranks, cpu_set_t *out_set) {
    int groups[CPU_SETSIZE];
    CPU_ZERO(out_set);
    if (count > CPU_SETSIZE) return RP_FAIL(UNSUPPORTED, "%d processors", count);
    int found = number_groups(binding, processors, count, groups);
    if (binding == RPI_BIND_CORE && ranks > found)
        return RP_FAIL(INVALID,
                       "%d ranks and %d core%s to bind them to: start fewer on this host, or "
                       "--bind-to none, socket or numa",
                       ranks, found, found == 1 ? "" : "s");
    long first = (long)rank * found / ranks, behind = (long)(rank + 1) * found / ranks;
    if (behind == first) behind++; /* more ranks than groups share them */
    for (int i = 0; i < count; i++)
        if (binding == RPI_BIND_NONE || (groups[i] >= first && groups[i] < behind))
            CPU_SET((size_t)processors[i].number, out_set);
    return RP_OK;
}

/* ---- this host ---- */

static int read_number(int processor, const char *file, int otherwise) {
    char path[96], text[24] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", processor, file);
    FILE *stream = fopen(path, "re");
    if (!stream) return otherwise;
    char *end = text;
    long number = fgets(text, sizeof text, stream) ? strtol(text, &end, 10) : 0;
    fclose(stream);
    return end == text || number < 0 ? otherwise : (int)number;
}

static int node_of(int processor) {
    char path[96];
    for (int node = 0; node < NODES_MAX; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", processor, node);
        if (access(path, F_OK) == 0) return node;
    }
    return 0;
}

/* By socket, node and core, so that neighbours in the list are near each other. */
static int compare(const void *left, const void *right) {
    const rpi_processor *a = left, *b = right;
    if (a->socket != b->socket) return a->socket - b->socket;
    if (a->node != b->node) return a->node - b->node;
    return a->core != b->core ? a->core - b->core : a->number - b->number;
}

rp_status rpi_bind_here(rpi_binding binding, int rank, int ranks, cpu_set_t *out_set) {
    rpi_processor processors[CPU_SETSIZE];
    cpu_set_t allowed;
    int count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return RP_FAIL_ERRNO(IO, "cannot see which processors may be used");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &allowed))
            processors[count++] =
                (rpi_processor){.number = i,
                                .core = read_number(i, "core_id", i),
                                .socket = read_number(i, "physical_package_id", 0),
                                .node = binding == RPI_BIND_NUMA ? node_of(i) : 0};
    qsort(processors, (size_t)count, sizeof *processors, compare);
    return rpi_bind_choose(binding, processors, count, rank, ranks, out_set);
}
