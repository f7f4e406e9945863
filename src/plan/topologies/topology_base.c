/* Base-(k+1): at most k partners a round, every round symmetric and doubly stochastic, and the
 * exact average of any number of ranks after one period.
 * Source: Takezawa et al., "Beyond Exponential Graph: Communication-Efficient Topologies for
 * Decentralized Learning via Finite-time Convergence", arXiv 2305.11420. */
#include "base/memory.h"
#include "base/status.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("k", COUNT, k, "1", 1, 63, "K",
                     "partners of a rank in a round, at most; 1: pairs"),
    {0},
};

enum { FACTORS = 16, ROUNDS = 64, DIGITS = 16 };

typedef struct pair { /* both ways, with one weight */
    int a, b;
    rpi_fraction weight;
} pair;

typedef struct list {
    pair *pairs;
    size_t used, room;
} list;

/* Rounds that are being written, or none: then they are only counted. */
typedef struct rounds {
    list rounds[ROUNDS];
    int count;
    int k;
    rp_status status;
} rounds;

static void write(rounds *r, int round, int a, int b, rpi_fraction weight) {
    list *it = &r->rounds[round];
    if (r->status != RP_OK) return;
    if (it->used == it->room) {
        size_t room = it->room ? 2 * it->room : 64;
        r->status = rpi_grow_array(it->used, room, sizeof *it->pairs, "edges of a topology",
                                   &it->pairs);
        if (r->status != RP_OK) return;
        it->room = room;
    }
    it->pairs[it->used++] = (pair){a, b, weight};
}

/* ---- the hyper-hypercube, where all prime factors are k + 1 or less ---- */

typedef struct factors {
    int list[FACTORS];
    int count; /* -1: there is a larger prime */
} factors;

/* By k + 1 as long as it goes, then by k ... 2; rising. */
static factors factors_of(int ranks, int k) {
    int falling[FACTORS], count = 0;
    factors rising = {.count = -1};
    for (int f = k + 1; f >= 2; f--)
        for (; ranks % f == 0 && count < FACTORS; ranks /= f) falling[count++] = f;
    if (ranks > 1) return rising;
    rising.count = count;
    for (int i = 0; i < count; i++) rising.list[i] = falling[count - 1 - i];
    return rising;
}

/* Round t of the hypercube over `ranks` places that begin at `first` and lie `apart`. */
static void write_cube_round(rounds *r, int round, int first, int apart, const factors *f,
                             int t) {
    int stride = 1, ranks = 1;
    for (int i = 0; i < t; i++) stride *= f->list[i];
    for (int i = 0; i < f->count; i++) ranks *= f->list[i];
    int size = f->list[t];
    for (int place = 0; place < ranks; place++) {
        int member = place / stride % size; /* of its clique */
        for (int other = member + 1; other < size; other++)
            write(r, round, first + place * apart,
                  first + (place + (other - member) * stride) * apart, (rpi_fraction){1, size});
    }
}

static void write_cube(rounds *r, int round, int first, int ranks, int t) {
    factors f = factors_of(ranks, r->k);
    if (f.count > 0) write_cube_round(r, round, first, 1, &f, t % f.count);
}

/* ---- any number of ranks ---- */

/* One digit of the number of ranks in base k + 1: `blocks` consecutive blocks of `block`. */
typedef struct digit {
    int first, blocks, block;
    int exponent;
    int ran; /* rounds of its blocks so far */
} digit;

typedef struct digits {
    digit list[DIGITS];
    int count;
    int ranks, base;
} digits;

static int size_of(const digit *d) {
    return d->blocks * d->block;
}

/* Highest first, without zeros. */
static digits digits_of(int first, int ranks, int k) {
    digits found = {.ranks = ranks, .base = k + 1};
    int block = 1, exponent = 0, at = 0;
    while (block <= ranks / (k + 1)) {
        block *= k + 1;
        exponent++;
    }
    for (; block; block /= k + 1, exponent--) {
        int blocks = (ranks - at) / block;
        if (!blocks) continue;
        found.list[found.count++] = (digit){first + at, blocks, block, exponent, 0};
        at += blocks * block;
    }
    return found;
}

/* How many ranks there are from digit j on. */
static int ranks_from(const digits *d, int j) {
    int ranks = 0;
    for (; j < d->count; j++) ranks += size_of(&d->list[j]);
    return ranks;
}

/* Each rank behind digit j brings its share of the digit's average: it meets one node of each
 * block, the last ones first, so that `taken` nodes at the end of each block are met. */
static int write_meetings(rounds *r, int round, const digits *d, int j) {
    const digit *big = &d->list[j];
    rpi_fraction weight = {big->block, ranks_from(d, j)};
    int taken = 0;
    for (int l = d->count - 1; l > j; l--)
        for (int i = 0; i < size_of(&d->list[l]); i++, taken++)
            for (int block = 0; block < big->blocks; block++)
                write(r, round, d->list[l].first + i,
                      big->first + (block + 1) * big->block - 1 - taken, weight);
    return taken;
}

/* Who was not met averages with others of the digit meanwhile. */
static void write_idle(rounds *r, int round, const digits *d, int j, int taken) {
    const digit *big = &d->list[j];
    int left = big->block - taken, idle = left * big->blocks;
    for (int from = 0; from < idle; from += d->base) {
        int size = idle - from < d->base ? idle - from : d->base;
        for (int a = from; a < from + size; a++)
            for (int b = a + 1; b < from + size; b++)
                write(r, round, big->first + a / left * big->block + a % left,
                      big->first + b / left * big->block + b % left, (rpi_fraction){1, size});
    }
}

/* The next round inside a digit's blocks, which spreads what was met. */
static void write_inside(rounds *r, int round, digit *d, int base) {
    if (size_of(d) < base) {
        write_cube(r, round, d->first, size_of(d), d->ran);
    } else {
        for (int block = 0; block < d->blocks; block++)
            write_cube(r, round, d->first + block * d->block, d->block, d->ran);
    }
    d->ran++;
}

/* From round 0 on, over `ranks` ranks from `first` on; returns how many rounds. */
static int write_simple(rounds *r, int first, int ranks) {
    factors cube = factors_of(ranks, r->k);
    for (int t = 0; t < cube.count; t++) write_cube(r, t, first, ranks, t);
    if (cube.count >= 0) return cube.count;
    digits d = digits_of(first, ranks, r->k);
    int round = factors_of(size_of(&d.list[0]), r->k).count;
    for (int t = 0; t < round; t++)
        for (int l = 0; l < d.count; l++)
            write_cube(r, t, d.list[l].first, size_of(&d.list[l]), t);
    for (int j = 0; d.list[0].ran < d.list[0].exponent; j++, round++) {
        if (j < d.count - 1) write_idle(r, round, &d, j, write_meetings(r, round, &d, j));
        for (int l = 0; l < d.count; l++)
            if (l < j || (l == d.count - 1 && j == l))
                write_inside(r, round, &d.list[l], d.base);
    }
    return round;
}

/* The largest divisor whose primes are all k + 1 or less. */
static int smooth_part(int ranks, int k) {
    int smooth = 1, prime = 2;
    for (; prime <= k + 1; prime++)
        for (; ranks % prime == 0; ranks /= prime) smooth *= prime;
    return smooth;
}

static void forget(rounds *r) {
    for (int i = 0; i < ROUNDS; i++) r->rounds[i].used = 0;
}

/* Blocks of equal size that each find their own average, then a hypercube over the blocks; or
 * all at once where that takes fewer rounds. */
static void write_rounds(rounds *r, int ranks) {
    int blocks = smooth_part(ranks, r->k), block = ranks / blocks;
    factors cube = factors_of(blocks, r->k);
    int inside = blocks > 1 && block > 1 ? write_simple(r, 0, block) + cube.count : INT32_MAX;
    forget(r);
    r->count = write_simple(r, 0, ranks);
    if (r->count < inside) return;
    forget(r);
    r->count = inside;
    for (int b = 0; b < blocks; b++) (void)write_simple(r, b * block, block);
    for (int place = 0; place < block; place++)
        for (int t = 0; t < cube.count; t++)
            write_cube_round(r, inside - cube.count + t, place, block, &cube, t);
}

/* ---- the kind ---- */

static void close(rpi_topology *topology) {
    rounds *r = topology->state;
    for (int i = 0; r && i < ROUNDS; i++) rpi_free(r->rounds[i].pairs);
    rpi_free(r);
}

static rp_status open(rpi_topology *topology) {
    rounds *r = NULL;
    RP_TRY(rpi_alloc(sizeof *r, "rounds of a topology", &r));
    topology->state = r;
    r->k = (int)topology->options.k;
    write_rounds(r, topology->ranks);
    return r->status;
}

static int64_t period(const rpi_topology *topology) {
    const rounds *r = topology->state;
    return r->count ? r->count : 1;
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    const list *it = &((const rounds *)topology->state)->rounds[step];
    for (size_t i = 0; i < it->used; i++) {
        rpi_mixing_weigh(mixing, it->pairs[i].a, it->pairs[i].b, it->pairs[i].weight);
        rpi_mixing_weigh(mixing, it->pairs[i].b, it->pairs[i].a, it->pairs[i].weight);
    }
}

const rpi_topology_kind rpi_topology_base = {
    .name = "base",
    .summary =
        "the exact average of any number of ranks after a few rounds; k=K partners a round",
    .options = options,
    .open = open,
    .close = close,
    .period = period,
    .mix = mix,
};
