#include "cli/bind_ranks.h"

#include "base/append.h"
#include "cli/host_hwloc.h"

#include <dirent.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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
static int number_groups(rpi_binding binding, const rpi_bind_host *host, int *groups) {
    int found = 0;
    for (int i = 0; i < host->count; i++) {
        int first = 0;
        while (!is_together(binding, &host->processors[first], &host->processors[i])) first++;
        groups[i] = first < i ? groups[first] : found++;
    }
    return found;
}

static bool has_node(const rpi_bind_share *share, int node) {
    return share->nodes[node / 64] >> (node % 64) & 1;
}

static void give(rpi_bind_share *share, const rpi_processor *processor) {
    CPU_SET((size_t)processor->number, &share->processors);
    if (processor->node >= 0 && processor->node < RPI_NODES_MAX)
        share->nodes[processor->node / 64] |= UINT64_C(1) << (processor->node % 64);
}

static bool has_processor(const rpi_bind_share *share, int number) {
    return CPU_ISSET((size_t)number, &share->processors);
}

/* "0-3,8": those of `most` that the share has. Returns how many. */
static int append_numbers(const rpi_bind_share *share, int most,
                          bool (*has)(const rpi_bind_share *share, int number), char *text,
                          size_t bytes) {
    int count = 0;
    for (int first = 0; first < most; first++) {
        int last = first;
        if (!has(share, first)) continue;
        while (last + 1 < most && has(share, last + 1)) last++;
        rpi_append(text, bytes, "%s%d", count ? "," : "", first);
        if (last > first) rpi_append(text, bytes, "-%d", last);
        count += last - first + 1;
        first = last;
    }
    return count;
}

static void describe(rpi_bind_share *share) {
    char processors[120] = "", nodes[60] = "";
    int many = append_numbers(share, CPU_SETSIZE, has_processor, processors, sizeof processors);
    int far = append_numbers(share, RPI_NODES_MAX, has_node, nodes, sizeof nodes);
    snprintf(share->text, sizeof share->text, "processor%s %s", many == 1 ? "" : "s",
             processors);
    if (far)
        rpi_append(share->text, sizeof share->text, " and memory of NUMA node%s %s",
                   far == 1 ? "" : "s", nodes);
}

rp_status rpi_bind_choose(rpi_binding binding, const rpi_bind_host *host, int rank, int ranks,
                          rpi_bind_share *out_share) {
    int groups[CPU_SETSIZE];
    *out_share = (rpi_bind_share){.text = ""};
    int found = number_groups(binding, host, groups);
    if (binding == RPI_BIND_CORE && ranks > found)
        return RP_FAIL(INVALID,
                       "%d ranks and %d core%s to bind them to: start fewer on this host, or "
                       "--bind-to none, socket or numa",
                       ranks, found, found == 1 ? "" : "s");
    long first = (long)rank * found / ranks, behind = (long)(rank + 1) * found / ranks;
    if (behind == first) behind++; /* more ranks than groups share them */
    for (int i = 0; i < host->count; i++)
        if (binding == RPI_BIND_NONE || (groups[i] >= first && groups[i] < behind))
            give(out_share, &host->processors[i]);
    describe(out_share);
    return RP_OK;
}

rp_status rpi_bind_check(rpi_binding binding, int ranks) {
    rpi_bind_host host;
    rpi_bind_share share;
    if (binding == RPI_BIND_NONE) return RP_OK;
    RP_TRY(rpi_bind_host_find(&host));
    return rpi_bind_choose(binding, &host, 0, ranks, &share);
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

/* The node of a processor, by a link nodeN in its folder; -1: none, as the kernel knows no
 * nodes. */
static int node_of(int processor) {
    char path[64];
    int node = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d", processor);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char *end = NULL;
        if (strncmp(entry->d_name, "node", 4) != 0) continue;
        long number = strtol(entry->d_name + 4, &end, 10);
        if (end > entry->d_name + 4 && !*end) node = (int)number;
    }
    if (folder) closedir(folder);
    return node;
}

/* Orders by socket, node and core, so that processors near each other are neighbours in the
 * list. */
static int compare(const void *left, const void *right) {
    const rpi_processor *a = left, *b = right;
    if (a->socket != b->socket) return a->socket - b->socket;
    if (a->node != b->node) return a->node - b->node;
    return a->core != b->core ? a->core - b->core : a->number - b->number;
}

static void read_sys(const cpu_set_t *allowed, rpi_bind_host *host) {
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, allowed))
            host->processors[host->count++] =
                (rpi_processor){.number = i,
                                .core = read_number(i, "core_id", i),
                                .socket = read_number(i, "physical_package_id", 0),
                                .node = node_of(i)};
}

/* hwloc reports all processors of the machine, or of this container. */
static void keep_allowed(const cpu_set_t *allowed, rpi_bind_host *host) {
    int kept = 0;
    for (int i = 0; i < host->count && !host->is_made_up; i++)
        if (CPU_ISSET((size_t)host->processors[i].number, allowed))
            host->processors[kept++] = host->processors[i];
    if (!host->is_made_up) host->count = kept;
}

rp_status rpi_bind_host_find(rpi_bind_host *out_host) {
    cpu_set_t allowed;
    out_host->count = 0;
    out_host->is_made_up = false;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return RP_FAIL_ERRNO(IO, "cannot see which processors may be used");
    if (rpi_hwloc_version()) {
        RP_TRY(rpi_hwloc_find(out_host));
        keep_allowed(&allowed, out_host);
    } else {
        read_sys(&allowed, out_host);
    }
    qsort(out_host->processors, (size_t)out_host->count, sizeof *out_host->processors, compare);
    return RP_OK;
}

/* ---- the rank itself ---- */

/* Nodes are preferred, not exclusive: a full node should make a rank slower, not end it. */
static bool bind_memory(const rpi_bind_share *share) {
    int count = 0;
    for (int node = 0; node < RPI_NODES_MAX; node++) count += has_node(share, node);
    if (count == 0) return true;
    int mode = count == 1 ? MPOL_PREFERRED : MPOL_PREFERRED_MANY;
    return syscall(SYS_set_mempolicy, mode, share->nodes, RPI_NODES_MAX + 1UL) == 0;
}

bool rpi_bind_self(const rpi_bind_share *share) {
    bool runs = sched_setaffinity(0, sizeof share->processors, &share->processors) == 0;
    return bind_memory(share) && runs;
}
