/* A report for programs: docs/json.md. */
#include "cli/doctor/doctor.h"

#include "cli/command.h"

#include <cjson/cJSON.h>

static void add_interfaces(const rpi_doctor_host *host, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "interfaces");
    for (int i = 0; i < host->interface_count; i++) {
        const rpi_doctor_interface *own = &host->interfaces[i];
        cJSON *each = cJSON_CreateObject();
        cJSON_AddStringToObject(each, "name", own->is.name);
        cJSON_AddStringToObject(each, "address", own->is.address);
        cJSON_AddNumberToObject(each, "mtu", own->mtu);
        if (own->speed_mbit) cJSON_AddNumberToObject(each, "speed_mbit", own->speed_mbit);
        cJSON_AddItemToArray(list, each);
    }
}

static cJSON *host_object(const rpi_doctor_report *report, int index) {
    const rpi_doctor_host *host = &report->hosts[index];
    const rpi_doctor_pair *from_first = rpi_doctor_pair_at(report, 0, index);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", host->name);
    if (*host->failure) {
        cJSON_AddStringToObject(object, "error", host->failure);
        return object;
    }
    cJSON_AddStringToObject(object, "version", host->version);
    cJSON_AddStringToObject(object, "isa", host->isa);
    cJSON_AddNumberToObject(object, "cores", host->cores);
    cJSON_AddNumberToObject(object, "load", host->load);
    cJSON_AddNumberToObject(object, "memory_bytes", (double)host->memory_bytes);
    cJSON_AddNumberToObject(object, "free_bytes", (double)host->free_bytes);
    if (index == 0 || from_first->is_reached)
        cJSON_AddNumberToObject(object, "clock_offset_s", from_first->result.offset_s);
    if (host->ports) {
        cJSON_AddNumberToObject(object, "ports", host->ports);
        cJSON_AddNumberToObject(object, "free_ports", host->free_ports);
    }
    add_interfaces(host, object);
    return object;
}

static void add_end(cJSON *object, const char *name, const rpi_doctor_end *end) {
    cJSON *each = cJSON_AddObjectToObject(object, name);
    cJSON_AddStringToObject(each, "address", end->address);
    cJSON_AddStringToObject(each, "interface", end->interface);
    cJSON_AddNumberToObject(each, "mtu", end->mtu);
}

static cJSON *pair_object(const rpi_doctor_report *report, int from, int to) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    const rpi_probe_result *result = &pair->result;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "from", report->hosts[from].name);
    cJSON_AddStringToObject(object, "to", report->hosts[to].name);
    cJSON_AddBoolToObject(object, "reached", pair->is_reached);
    if (*pair->failure) cJSON_AddStringToObject(object, "error", pair->failure);
    if (!pair->is_reached) return object;
    add_end(object, "from_end", &pair->from);
    add_end(object, "to_end", &pair->to);
    if (report->streams > 1) cJSON_AddStringToObject(object, "ways", pair->ways);
    cJSON_AddNumberToObject(object, "latency_us", result->latency_s * 1e6);
    if (result->rate <= 0) return object;
    cJSON_AddNumberToObject(object, "mbit_per_s", result->rate * 8 / 1e6);
    cJSON_AddNumberToObject(object, "bytes", (double)result->bytes);
    cJSON_AddNumberToObject(object, "packets", (double)result->packets);
    cJSON_AddNumberToObject(object, "resent", (double)result->resent);
    return object;
}

void rpi_doctor_print_json(const rpi_doctor_report *report) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "ready", rpi_doctor_is_well(report));
    cJSON *hosts = cJSON_AddArrayToObject(object, "hosts");
    for (int i = 0; i < report->count && !(report->is_alone && i > 0); i++)
        cJSON_AddItemToArray(hosts, host_object(report, i));
    cJSON *pairs = cJSON_AddArrayToObject(object, "pairs");
    for (int from = 0; from < report->count; from++)
        for (int to = 0; to < report->count; to++)
            if (rpi_doctor_pair_at(report, from, to)->is_tried)
                cJSON_AddItemToArray(pairs, pair_object(report, from, to));
    cJSON *findings = cJSON_AddArrayToObject(object, "findings");
    for (int i = 0; i < report->finding_count; i++) {
        cJSON *each = cJSON_CreateObject();
        cJSON_AddBoolToObject(each, "failure", report->findings[i].is_failure);
        cJSON_AddStringToObject(each, "text", report->findings[i].text);
        cJSON_AddItemToArray(findings, each);
    }
    cJSON_AddBoolToObject(object, "tls", report->tls);
    cJSON_AddNumberToObject(object, "streams", report->streams);
    rpi_command_print_json(object);
}
