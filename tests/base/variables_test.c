/* Environment variables: mistakes are named with what was meant, those of a Kubernetes Service
 * are nobody's. A stranger who met another one adds a row. */
#include "base/variables.h"

#include "base/log.h"
#include "harness/check.h"

#include <string.h>

typedef struct row {
    const char *assignment;
    const char *meant; /* NULL: nothing is said */
} row;

static const row rows[] = {
    {"REDPOLL_CODECC=q4", "REDPOLL_CODEC"},
    {"REDPOLL_CODE=q4", "REDPOLL_CODEC"},
    {"REDPOLL_SOCKET_IFNAMES=eth0", "REDPOLL_SOCKET_IFNAME"},
    {"REDPOLL_STREAM=2", "REDPOLL_STREAMS"},
    {"REDPOLL_TIME_OUT=5", "REDPOLL_TIMEOUT"},
    {"REDPOLL_SECRETFILE=x", "REDPOLL_SECRET_FILE"},
    {"REDPOLL_PROT=29500", "REDPOLL_PORT"},
    {"REDPOLL_LOGG=info", "REDPOLL_LOG"},
    {"REDPOLL_CODEC=q4", NULL},
    {"REDPOLL_TEST_SEED=3", NULL},
    {"REDPOLL_LONG_TESTS=1", NULL},
    {"REDPOLL_MY_OWN_NOTE_OF_THE_CLUSTER=1", NULL}, /* resembles nothing */
    {"redpoll_codecc=q4", NULL},
    {"PATH=/bin", NULL},
    {"REDPOLL_", NULL},
    {"REDPOLL_CODECC", "REDPOLL_CODEC"},
    /* what Kubernetes sets for Services named redpoll, redpoll-store and redpoll-http */
    {"REDPOLL_PORT=tcp://10.0.0.1:80", NULL},
    {"REDPOLL_SERVICE_HOST=10.0.0.1", NULL},
    {"REDPOLL_SERVICE_PORT=80", NULL},
    {"REDPOLL_SERVICE_PORT_HTTP=80", NULL},
    {"REDPOLL_PORT_80_TCP=tcp://10.0.0.1:80", NULL},
    {"REDPOLL_PORT_80_TCP_PROTO=tcp", NULL},
    {"REDPOLL_PORT_80_TCP_PORT=80", NULL},
    {"REDPOLL_PORT_80_TCP_ADDR=10.0.0.1", NULL},
    {"REDPOLL_PORT_53_UDP_ADDR=10.0.0.1", NULL},
    {"REDPOLL_STORE_SERVICE_HOST=10.0.0.1", NULL},
    {"REDPOLL_STORE_PORT=tcp://10.0.0.1:29500", NULL},
    {"REDPOLL_X_PORT=tcp://10.0.0.1:80", NULL},
    {"REDPOLL_X_PORT=80", "REDPOLL_PORT"},
};

static char said[512];

static void hear(void *context, rp_log_level level, const char *line) {
    (void)context;
    (void)level;
    snprintf(said, sizeof said, "%s", line);
}

static void mistakes_are_named(void) {
    rp_log_set_sink(hear, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char copy[128], wanted[160];
        char *list[] = {copy, NULL};
        snprintf(copy, sizeof copy, "%s", rows[i].assignment);
        said[0] = '\0';
        CHECK_EQ(rpi_variables_check(list), rows[i].meant != NULL);
        snprintf(wanted, sizeof wanted, "did you mean '%s'",
                 rows[i].meant ? rows[i].meant : "");
        CHECK_MSG(rows[i].meant ? strstr(said, wanted) != NULL : !said[0], "%s: '%s'",
                  rows[i].assignment, said);
    }
    rp_log_set_sink(NULL, NULL);
}

static const struct {
    const char *name, *value;
    bool is_of_service;
} services_rows[] = {
    {"MASTER_PORT", "tcp://10.0.0.1:29500", true},
    {"MASTER_PORT", "29500", false},
    {"MASTER_PORT", "://10.0.0.1:29500", false},
    {"MASTER_PORT", "tcp:/10.0.0.1:29500", false},
    {"MASTER_PORTAL", "tcp://10.0.0.1:29500", false},
    {"PORT", "tcp://10.0.0.1:29500", false},
    {"_PORT", "tcp://10.0.0.1:29500", true}, /* all of it is the end */
    {"A_SERVICE_HOST", "10.0.0.1", true},
    {"A_SERVICE_PORT", "80", true},
    {"A_SERVICE_PORT_HTTP", "80", true},
    {"A_SERVICE_PORTS", "80", false},
    {"A_SERVICE_HOSTS", "80", false},
    {"A_PORT_80_TCP", "tcp://10.0.0.1:80", true},
    {"A_PORT_53_UDP_PROTO", "udp", true},
    {"A_PORT_9_SCTP_ADDR", "10.0.0.1", true},
    {"A_PORT_RANGE_PORT_80_TCP_PORT", "80", true}, /* of a Service named a-port-range */
    {"A_PORT_80", "80", false},
    {"A_PORT_80_TC", "80", false},
    {"A_PORT_80_DCCP", "80", false},
    {"A_PORT__TCP", "80", false},
    {"REDPOLL_PORTS", "20000-20100", false},
    {"REDPOLL_STORE", "10.0.0.1:29500", false},
};

static void services(void) {
    for (size_t i = 0; i < sizeof services_rows / sizeof services_rows[0]; i++)
        CHECK_MSG(rpi_variable_is_of_service(services_rows[i].name, services_rows[i].value) ==
                      services_rows[i].is_of_service,
                  "%s=%s", services_rows[i].name, services_rows[i].value);
}

/* Indices beyond the list are nobody's, and the names are in order. */
static void names_are_a_list(void) {
    int count = 0;
    CHECK(!rpi_variable_name(-1));
    for (; rpi_variable_name(count); count++)
        if (count) CHECK(strcmp(rpi_variable_name(count - 1), rpi_variable_name(count)) < 0);
    CHECK(count > 100 && !rpi_variable_name(count + 1));
}

CASES({"mistakes are named", mistakes_are_named}, {"services", services},
      {"names are a list", names_are_a_list})
