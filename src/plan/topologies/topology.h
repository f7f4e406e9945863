/* Who averages with whom, and with which weight: a topology is a pure function
 * (ranks, step) -> mixing matrix (mixing.h). `topologies.c` is the catalogue of its kinds.
 *
 * Users write NAME[:option=value[,option=value]...]: "ring", "base:k=2", "file:graph.txt". */
#ifndef RPI_PLAN_TOPOLOGY_H
#define RPI_PLAN_TOPOLOGY_H

#include "base/option.h"
#include "plan/topologies/mixing.h"

enum {
    RPI_TOPOLOGY_RANKS = 4096, /* most ranks */
    RPI_TOPOLOGY_TEXT = 1024   /* longest text, including its NUL */
};

/* The options of all kinds; a kind's table says which are its own. */
typedef struct rpi_topology_options {
    const char *weights;   /* name of a rule; NULL: the kind's */
    const char *direction; /* ring */
    const char *shape;     /* mesh, torus */
    const char *machines;  /* hierarchical: the topology of machines */
    const char *path;      /* file */
    int64_t base, k, centre, local, degree, ports, seed;
    bool symmetric, directed;
} rpi_topology_options;

typedef struct rpi_topology rpi_topology;

/* The contract of a topology kind. Everything is pure: the same arguments give the same edges
 * on every rank. */
typedef struct rpi_topology_kind {
    const char *name;          /* "ring" */
    const char *summary;       /* one line */
    const rpi_option *options; /* over rpi_topology_options; yaml is the name again */
    /* The option that takes the rest of the text, commas and all; NULL: none. */
    const char *rest;
    bool is_rest;            /* all behind the colon is that option's value, without its name */
    rpi_weight_rule weights; /* unless the option `weights` says another; GIVEN: its own */
    int vectors;             /* a rank has; 0: one */
    /* RP_INVALID: this number of ranks, or these options, cannot be; what can. NULL: all can.
     */
    rp_status (*check)(const rpi_topology *topology);
    /* Make topology->state, from what has been checked, and free it. NULL: there is none. */
    rp_status (*open)(rpi_topology *topology);
    void (*close)(rpi_topology *topology);
    /* Rounds until all begins again; 0: never, each step is drawn anew. NULL: 1. */
    int64_t (*period)(const rpi_topology *topology);
    /* Write the links of a step; of a kind with a period, step < period. */
    void (*mix)(const rpi_topology *topology, int64_t step, rpi_mixing *mixing);
} rpi_topology_kind;

struct rpi_topology {
    const rpi_topology_kind *const *kinds; /* the catalogue, for topologies of topologies */
    const rpi_topology_kind *kind;
    int ranks, vectors;
    int64_t period; /* of its rounds; 0: none */
    rpi_weight_rule weights;
    rpi_topology_options options;
    char text[RPI_TOPOLOGY_TEXT];  /* as it was written */
    char words[RPI_TOPOLOGY_TEXT]; /* what options point to */
    void *state;                   /* the kind's */
};

/* The catalogue; NULL past the end. */
const rpi_topology_kind *rpi_topology_kind_at(int index);

/* RP_INVALID: text that is no topology, or one that these ranks cannot have: what is allowed.
 * RP_NOT_FOUND, RP_IO, RP_CORRUPT: a file. Close it with rpi_topology_close (NULL is fine). */
rp_status rpi_topology_open(const char *text, int ranks, rpi_topology **out_topology);
void rpi_topology_close(rpi_topology *topology);

/* RP_UNSUPPORTED: ranks have more than one vector in it, and an exchange of one is wanted. */
rp_status rpi_topology_check_single(const rpi_topology *topology);

/* The round of a step, 0 or more, into a mixing that is empty or of an earlier call; free it
 * with rpi_mixing_free. O(e log e) for e edges. */
rp_status rpi_topology_mix(const rpi_topology *topology, int64_t step, rpi_mixing *in_out);

/* ---- for kinds ---- */

/* A row of a kind's table; the table ends with {0}. */
/* clang-format off */
#define RPI_TOPOLOGY_ROW(name, type, field, fallback, least, most, value, help)                \
    {name, NULL, name, RPI_OPTION_##type, offsetof(rpi_topology_options, field), fallback,     \
     least, most, value, help, NULL}
#define RPI_TOPOLOGY_WEIGHTS                                                                   \
    RPI_TOPOLOGY_ROW("weights", TEXT, weights, NULL, 0, 0,                                     \
                     "uniform|sender|metropolis-hastings",                                     \
                     "how much each neighbour counts")
/* clang-format on */

/* As rpi_topology_open, among these kinds, of which the last is NULL. */
rp_status rpi_topology_open_of(const rpi_topology_kind *const *kinds, const char *text,
                               int ranks, rpi_topology **out_topology);
int rpi_topology_wrap(int64_t rank, int ranks); /* into 0 ... ranks - 1 */
/* RP_INVALID unless the ranks are whole machines of `local` ranks, at least so many each. */
rp_status rpi_topology_check_machines(const rpi_topology *topology, int least_local);
int64_t rpi_least_common_multiple(int64_t a, int64_t b);

#endif
