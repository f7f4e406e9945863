#include "plan/cost.h"

#include "base/memory.h"
#include "plan/collective.h"
#include "plan/event_heap.h"
#include "plan/layout.h"
#include "plan/split.h"

#include <math.h>

enum event_kind {
    CORE_DONE, /* the core has done its share of a step */
    SENT,      /* the last byte of a SEND has left */
    ARRIVAL,   /* the first byte of a SEND reaches the receiver's NIC */
    RECEIVED   /* the last byte of a RECV is in */
};

/* Of long vectors so many chunks are simulated: for each in flight this many, but no more steps
 * than this, and no fewer chunks than this. */
enum { ROUNDS_OF_CHUNKS = 8, MOST_STEPS = 2 * 1000 * 1000, FEWEST_CHUNKS = 3 };

/* What is laid out in memory at all: links of all ranks, steps of all ranks (some 50 bytes). */
enum { LARGEST_WORLD = 4096, LARGEST_SIMULATION = 32 * 1000 * 1000 };

/* One way in and one out: a host's NIC, or a rank's way to the others of its host. */
typedef struct nic {
    double send_free_s, receive_free_s;
    double bytes, busy_s; /* sent in one chunk */
} nic;

/* The cores of a host that has fewer than ranks: those who find none wait in turn. */
typedef struct crew {
    int free, waiting;
    int first, last; /* ranks; through machine.next_in_line */
} crew;

typedef struct machine { /* one rank */
    nic local;
    rpi_event_heap ready; /* steps that wait for the core; their "time" is their urgency */
    bool core_busy;
    bool in_line;                                  /* for a core */
    int next_in_line;                              /* a rank */
    double wire_bytes, wire_s, encode_s, decode_s; /* of one chunk */
    int frames;                                    /* of one chunk */
    int next_chunk;
} machine;

/* Steps of all ranks are numbered through: rank r's begin at first[r]. */
typedef struct simulation {
    const rpi_cost_model *model;
    const rpi_plan_request *request;
    rpi_host_layout layout;
    nic *nics;   /* [hosts] */
    crew *crews; /* [hosts] */
    int world, steps;
    int chunks, simulated, in_flight;
    double part_bytes, part_encoded;
    rpi_schedule *schedules; /* [world] */
    machine *machines;       /* [world] */
    int *first;              /* [world + 1] */
    int *rank_of;            /* [steps] */
    int *local_rank;         /* [steps]: the RECV that a SEND meets */
    int *waits;              /* [simulated][steps] */
    int *left;               /* [simulated][world]: steps still to end */
    double *end_s;           /* [simulated]: when the last rank ends the chunk */
    rpi_event_heap heap;
} simulation;

static const rpi_step *step_at(const simulation *s, int number) {
    int rank = s->rank_of[number];
    return &s->schedules[rank].steps[number - s->first[rank]];
}

static double over(double amount, double rate) {
    return rate > 0 ? amount / rate : 0;
}

static bool is_inside(const simulation *s, int number) {
    return s->layout.host_of[s->rank_of[number]] == s->layout.host_of[step_at(s, number)->peer];
}

/* Of a SEND: as it is, or encoded, which its RECV knows. */
static double frame_bytes(const simulation *s, int send) {
    if (step_at(s, send)->from == RPI_SLOT_RTR) return s->model->frame_bytes;
    bool exact = step_at(s, s->local_rank[send])->level == RPI_LEVEL_HOST;
    return s->model->frame_bytes + (exact ? s->part_bytes : s->part_encoded);
}

/* How long a SEND keeps a NIC busy. */
static double wire_s(const simulation *s, int send) {
    const rpi_cost_model *m = s->model;
    return over(frame_bytes(s, send),
                is_inside(s, send) ? m->inside_bytes_per_s : m->bytes_per_s);
}

static nic *nic_of(simulation *s, int number) {
    int rank = s->rank_of[number];
    return is_inside(s, number) ? &s->machines[rank].local : &s->nics[s->layout.host_of[rank]];
}

/* IN -> OUT is free, since most calls are in place; all else walks over the part. */
static double core_s(const simulation *s, int number) {
    const rpi_step *step = step_at(s, number);
    if (step->peer >= 0)
        return is_inside(s, number) ? s->model->inside_frame_s : s->model->frame_s;
    if (step->kind == RPI_STEP_ENCODE && step->level == RPI_LEVEL_WORLD)
        return over(s->part_bytes, s->model->encode_bytes_s);
    bool free = step->kind == RPI_STEP_FENCE ||
                (step->kind == RPI_STEP_COPY && step->from == RPI_SLOT_IN &&
                 step->into == RPI_SLOT_OUT);
    return free ? 0 : over(s->part_bytes, s->model->decode_add_bytes_s);
}

/* Take a nic, which serves in the order of asking; returns when it begins. */
static double serve(double *free_s, double now_s, double service_s) {
    double begin_s = now_s > *free_s ? now_s : *free_s;
    *free_s = begin_s + service_s;
    return begin_s;
}

static crew *crew_of(simulation *s, const machine *self) {
    return &s->crews[s->layout.host_of[self - s->machines]];
}

static void stand_in_line(simulation *s, machine *self) {
    crew *c = crew_of(s, self);
    int rank = (int)(self - s->machines);
    if (c->waiting++)
        s->machines[c->last].next_in_line = rank;
    else
        c->first = rank;
    c->last = rank;
    self->in_line = true;
}

/* The rank has a core: it takes up its most urgent step. */
static rp_status work(simulation *s, machine *self, double now_s) {
    rpi_event next;
    if (!rpi_event_take(&self->ready, &next)) return RP_OK;
    self->core_busy = true;
    crew_of(s, self)->free--;
    next.time_s = now_s + core_s(s, next.step);
    return rpi_event_put(&s->heap, next);
}

static rp_status dispatch(simulation *s, machine *self, double now_s) {
    if (self->core_busy || self->in_line || !self->ready.count) return RP_OK;
    if (crew_of(s, self)->free > 0) return work(s, self, now_s);
    stand_in_line(s, self);
    return RP_OK;
}

/* Where this rank has no more to do, whoever has waited longest for its core has it, after a
 * turn. */
static rp_status hand_on(simulation *s, machine *self, double now_s) {
    crew *c = crew_of(s, self);
    if (self->core_busy || !c->waiting || !c->free) return RP_OK;
    machine *next = &s->machines[c->first];
    c->first = next->next_in_line;
    c->waiting--;
    next->in_line = false;
    return work(s, next, now_s + s->model->turn_s);
}

/* A step may start. RECVs need their frame too, which counts as one more wait and so has come.
 */
static rp_status begin(simulation *s, int number, int chunk, double now_s) {
    machine *self = &s->machines[s->rank_of[number]];
    double urgency = (double)chunk * s->steps + number;
    RP_TRY(rpi_event_put(
        &self->ready,
        (rpi_event){.time_s = urgency, .what = CORE_DONE, .step = number, .chunk = chunk}));
    return dispatch(s, self, now_s);
}

static rp_status release(simulation *s, int number, int chunk, double now_s) {
    int *waits = &s->waits[(size_t)chunk * (size_t)s->steps + (size_t)number];
    return --*waits == 0 ? begin(s, number, chunk, now_s) : RP_OK;
}

/* Begin the rank's next chunk: its steps wait for one thing less, the chunk itself. */
static rp_status begin_chunk(simulation *s, int rank, double now_s) {
    int chunk = s->machines[rank].next_chunk++;
    if (chunk >= s->simulated) return RP_OK;
    for (int number = s->first[rank]; number < s->first[rank + 1]; number++)
        RP_TRY(release(s, number, chunk, now_s));
    return RP_OK;
}

static rp_status end_step(simulation *s, const rpi_event *event) {
    int rank = s->rank_of[event->step], base = s->first[rank];
    const rpi_schedule *schedule = &s->schedules[rank];
    const int *row = &schedule->next_first[event->step - base];
    for (int k = row[0]; k < row[1]; k++)
        RP_TRY(release(s, base + schedule->next[k], event->chunk, event->time_s));
    if (--s->left[event->chunk * s->world + rank] > 0) return RP_OK;
    if (event->time_s > s->end_s[event->chunk]) s->end_s[event->chunk] = event->time_s;
    return begin_chunk(s, rank, event->time_s);
}

/* The frame goes to the nic, which sends it behind those before it. */
static rp_status leave(simulation *s, rpi_event event) {
    double busy_s = wire_s(s, event.step);
    double begin_s = serve(&nic_of(s, event.step)->send_free_s, event.time_s, busy_s);
    const rpi_cost_model *m = s->model;
    event.what = ARRIVAL;
    event.time_s = begin_s + (is_inside(s, event.step) ? m->inside_latency_s : m->latency_s);
    RP_TRY(rpi_event_put(&s->heap, event));
    event.what = SENT;
    event.time_s = begin_s + busy_s;
    return rpi_event_put(&s->heap, event);
}

/* The receiver's NIC takes it in behind those before it. */
static rp_status arrive(simulation *s, rpi_event event) {
    double busy_s = wire_s(s, event.step);
    event.what = RECEIVED;
    event.step = s->local_rank[event.step];
    nic *taker = nic_of(s, event.step);
    serve(&taker->receive_free_s, event.time_s, busy_s);
    event.time_s = taker->receive_free_s;
    return rpi_event_put(&s->heap, event);
}

static rp_status end_core(simulation *s, const rpi_event *event) {
    machine *self = &s->machines[s->rank_of[event->step]];
    bool send = step_at(s, event->step)->kind == RPI_STEP_SEND;
    self->core_busy = false;
    crew_of(s, self)->free++;
    RP_TRY(send ? leave(s, *event) : end_step(s, event));
    RP_TRY(dispatch(s, self, event->time_s));
    return hand_on(s, self, event->time_s);
}

static rp_status handle(simulation *s, const rpi_event *event) {
    switch (event->what) {
    case CORE_DONE: return end_core(s, event);
    case SENT: return end_step(s, event);
    case ARRIVAL: return arrive(s, *event);
    default: return release(s, event->step, event->chunk, event->time_s);
    }
}

static rp_status run(simulation *s) {
    for (int rank = 0; rank < s->world; rank++)
        for (int i = 0; i < s->in_flight; i++) RP_TRY(begin_chunk(s, rank, 0));
    rpi_event event;
    while (rpi_event_take(&s->heap, &event)) RP_TRY(handle(s, &event));
    return RP_OK;
}

/* Which RECV each SEND meets: queues of RECVs for each link, in the order of the steps. */
static rp_status match(simulation *s) {
    size_t links = (size_t)s->world * (size_t)s->world;
    int *head = NULL, *tail = NULL, *behind = NULL; /* step numbers + 1 */
    rp_status status = rpi_alloc_array(links, sizeof *head, "links to match", &head);
    if (status == RP_OK) status = rpi_alloc_array(links, sizeof *tail, "links to match", &tail);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)s->steps, sizeof *behind, "frames to match", &behind);
    for (int i = 0; i < s->steps && status == RP_OK; i++) {
        const rpi_step *step = step_at(s, i);
        if (step->kind != RPI_STEP_RECV) continue;
        size_t link = (size_t)step->peer * (size_t)s->world + (size_t)s->rank_of[i];
        if (tail[link])
            behind[tail[link] - 1] = i + 1;
        else
            head[link] = i + 1;
        tail[link] = i + 1;
    }
    for (int i = 0; i < s->steps && status == RP_OK; i++) {
        const rpi_step *step = step_at(s, i);
        if (step->kind != RPI_STEP_SEND) continue;
        size_t link = (size_t)s->rank_of[i] * (size_t)s->world + (size_t)step->peer;
        if (!head[link]) {
            status = RP_FAIL(INTERNAL, "rank %d sends rank %d a frame too many", s->rank_of[i],
                             step->peer);
            break;
        }
        s->local_rank[i] = head[link] - 1;
        head[link] = behind[s->local_rank[i]];
    }
    rpi_free(head);
    rpi_free(tail);
    rpi_free(behind);
    return status;
}

/* What a rank does in one chunk, whatever the order. */
static void account(simulation *s, int rank) {
    machine *self = &s->machines[rank];
    for (int number = s->first[rank]; number < s->first[rank + 1]; number++) {
        const rpi_step *step = step_at(s, number);
        if (step->kind == RPI_STEP_SEND) {
            nic *taken = nic_of(s, number);
            self->wire_bytes += frame_bytes(s, number);
            taken->bytes += frame_bytes(s, number);
            taken->busy_s += wire_s(s, number);
            self->wire_s += is_inside(s, number) ? 0 : wire_s(s, number);
            self->frames++;
        } else if (step->kind == RPI_STEP_ENCODE) {
            self->encode_s += core_s(s, number);
        } else if (step->kind != RPI_STEP_RECV) {
            self->decode_s += core_s(s, number);
        }
    }
}

static rp_status check_size(const rpi_algorithm *algorithm, int world, double steps) {
    if (world <= LARGEST_WORLD && steps <= LARGEST_SIMULATION) return RP_OK;
    return RP_FAIL(UNSUPPORTED, "%s by '%s' among %d ranks is too large to simulate",
                   rpi_collective_name(algorithm->collective), algorithm->name, world);
}

static rp_status build_schedules(simulation *s, const rpi_algorithm *algorithm) {
    size_t world = (size_t)s->world;
    RP_TRY(check_size(algorithm, s->world, 0));
    RP_TRY(rpi_layout_make(s->request, &s->layout));
    RP_TRY(rpi_alloc_array((size_t)s->layout.hosts, sizeof *s->nics, "nics", &s->nics));
    RP_TRY(rpi_alloc_array((size_t)s->layout.hosts, sizeof *s->crews, "cores", &s->crews));
    for (int host = 0; host < s->layout.hosts; host++)
        s->crews[host].free =
            s->model->cores > 0 ? s->model->cores : rpi_layout_size(&s->layout, host);
    RP_TRY(rpi_alloc_array(world, sizeof *s->schedules, "schedules", &s->schedules));
    RP_TRY(rpi_alloc_array(world, sizeof *s->machines, "ranks to simulate", &s->machines));
    RP_TRY(rpi_alloc_array(world + 1, sizeof *s->first, "ranks to simulate", &s->first));
    for (int rank = 0; rank < s->world; rank++) {
        rpi_plan_request request = *s->request;
        request.rank = rank;
        RP_TRY(rpi_schedule_build(algorithm, &request, &s->schedules[rank]));
        RP_TRY(check_size(algorithm, s->world, (double)s->schedules[0].count * s->world));
        s->first[rank + 1] = s->first[rank] + s->schedules[rank].count;
    }
    s->steps = s->first[s->world];
    RP_TRY(rpi_alloc_array((size_t)s->steps, sizeof(int), "steps to simulate", &s->rank_of));
    RP_TRY(rpi_alloc_array((size_t)s->steps, sizeof(int), "steps to simulate", &s->local_rank));
    for (int rank = 0; rank < s->world; rank++)
        for (int i = s->first[rank]; i < s->first[rank + 1]; i++) s->rank_of[i] = rank;
    return match(s);
}

/* Into how many parts the bytes are cut: an all-to-all has its blocks twice, as it sends and as
 * it receives them. */
static int cut_parts(const rpi_algorithm *algorithm, const rpi_schedule *schedule) {
    return rpi_collective_kind_of(algorithm->collective)->both_ways ? schedule->world
                                                                    : schedule->parts;
}

/* How many chunks there are, and how many of them are simulated to tell the pace of all. */
static void plan_chunks(simulation *s, const rpi_algorithm *algorithm, size_t bytes,
                        size_t encoded) {
    int parts = cut_parts(algorithm, &s->schedules[0]);
    s->chunks = rpi_split_chunks(bytes, encoded, s->model->chunk_bytes, parts);
    s->in_flight =
        s->model->chunks_in_flight > 0 ? s->model->chunks_in_flight : RPI_CHUNKS_IN_FLIGHT;
    if (s->in_flight > s->chunks) s->in_flight = s->chunks;
    double wanted = (double)s->in_flight * ROUNDS_OF_CHUNKS + 1;
    if (wanted * s->steps > MOST_STEPS)
        wanted = fmax((double)MOST_STEPS / s->steps, FEWEST_CHUNKS);
    s->simulated = wanted < s->chunks ? (int)wanted : s->chunks;
    s->part_bytes = (double)bytes / s->chunks / parts;
    s->part_encoded = (double)encoded / s->chunks / parts;
}

static rp_status lay_out_chunks(simulation *s) {
    size_t chunks = (size_t)s->simulated, steps = (size_t)s->steps, world = (size_t)s->world;
    RP_TRY(rpi_alloc_array(chunks * steps, sizeof(int), "steps to simulate", &s->waits));
    RP_TRY(rpi_alloc_array(chunks * world, sizeof(int), "chunks to simulate", &s->left));
    RP_TRY(rpi_alloc_array(chunks, sizeof(double), "chunks to simulate", &s->end_s));
    for (int rank = 0; rank < s->world; rank++) {
        const rpi_schedule *schedule = &s->schedules[rank];
        for (size_t chunk = 0; chunk < chunks; chunk++) {
            int *waits = &s->waits[chunk * steps + (size_t)s->first[rank]];
            s->left[chunk * world + (size_t)rank] = schedule->count;
            for (int i = 0; i < schedule->count; i++)
                waits[i] = schedule->waits[i] + 1 + (schedule->steps[i].kind == RPI_STEP_RECV);
        }
        account(s, rank);
    }
    return RP_OK;
}

/* Work of a host's ranks in one chunk, on its cores. */
static double crew_s(const simulation *s, int host) {
    double work_s = 0;
    int ranks = rpi_layout_size(&s->layout, host), cores = s->model->cores;
    for (int i = 0; i < ranks; i++) {
        const machine *self = &s->machines[rpi_layout_rank(&s->layout, host, i)];
        work_s += self->encode_s + self->decode_s;
    }
    return work_s / (cores > 0 && cores < ranks ? cores : ranks);
}

/* No rank goes through a chunk faster than its NIC sends it or its core works on it. */
static double least_pace_s(const simulation *s) {
    double least_s = 0;
    for (int rank = 0; rank < s->world; rank++) {
        const machine *self = &s->machines[rank];
        least_s = fmax(least_s, fmax(self->local.busy_s, self->encode_s + self->decode_s));
    }
    for (int host = 0; host < s->layout.hosts; host++)
        least_s = fmax(least_s, fmax(s->nics[host].busy_s, crew_s(s, host)));
    return least_s;
}

/* Seconds a chunk in the steady state: between the first quarter of the chunks, which find
 * links and cores idle, and the last, which no others follow. Chunks in flight together tend to
 * end together, so whole rounds of them are counted where there are any. */
static double pace_s(const simulation *s) {
    int from = s->simulated / 4, span = s->simulated - 1 - 2 * from;
    if (span > s->in_flight) span -= span % s->in_flight;
    return fmax((s->end_s[from + span] - s->end_s[from]) / span, least_pace_s(s));
}

static double total_s(const simulation *s) {
    double end_s = 0;
    for (int i = 0; i < s->simulated; i++) end_s = fmax(end_s, s->end_s[i]);
    return s->simulated < s->chunks ? end_s + pace_s(s) * (s->chunks - s->simulated) : end_s;
}

static rpi_cost summary(const simulation *s) {
    const machine *busiest = &s->machines[0];
    for (int rank = 1; rank < s->world; rank++)
        if (s->machines[rank].wire_bytes > busiest->wire_bytes) busiest = &s->machines[rank];
    double chunks = s->chunks, host_bytes = 0;
    for (int host = 0; host < s->layout.hosts; host++)
        host_bytes = fmax(host_bytes, s->nics[host].bytes);
    return (rpi_cost){.time_s = total_s(s),
                      .wire_bytes = busiest->wire_bytes * chunks,
                      .host_bytes = host_bytes * chunks,
                      .wire_s = busiest->wire_s * chunks,
                      .encode_s = busiest->encode_s * chunks,
                      .decode_s = busiest->decode_s * chunks,
                      .frames = (int64_t)busiest->frames * s->chunks,
                      .chunks = s->chunks};
}

static void simulation_close(simulation *s) {
    for (int rank = 0; s->schedules && rank < s->world; rank++)
        rpi_schedule_destroy(&s->schedules[rank]);
    for (int rank = 0; s->machines && rank < s->world; rank++)
        rpi_event_heap_free(&s->machines[rank].ready);
    rpi_free(s->schedules);
    rpi_free(s->machines);
    rpi_layout_free(&s->layout);
    rpi_free(s->nics);
    rpi_free(s->crews);
    rpi_free(s->first);
    rpi_free(s->rank_of);
    rpi_free(s->local_rank);
    rpi_free(s->waits);
    rpi_free(s->left);
    rpi_free(s->end_s);
    rpi_event_heap_free(&s->heap);
}

static bool is_amount(double value) {
    return value >= 0 && isfinite(value);
}

static rp_status check_model(const rpi_cost_model *model) {
    if (!is_amount(model->bytes_per_s) || !is_amount(model->latency_s) ||
        !is_amount(model->encode_bytes_s) || !is_amount(model->decode_add_bytes_s) ||
        !is_amount(model->frame_bytes) || !is_amount(model->inside_bytes_per_s) ||
        !is_amount(model->inside_latency_s) || !is_amount(model->inside_frame_s) ||
        !is_amount(model->turn_s) || model->cores < 0 || model->chunks_in_flight < 0)
        return RP_FAIL(INVALID, "rates, latency and sizes of a cost model must be 0 or more");
    return RP_OK;
}

rp_status rpi_plan_cost(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                        size_t bytes, size_t encoded, const rpi_cost_model *model,
                        rpi_cost *out_cost) {
    int world = request->world;
    RP_TRY(check_model(model));
    if (world < 1) return RP_FAIL(INVALID, "world is %d; it must be at least 1", world);
    simulation s = {.model = model, .request = request, .world = world};
    rp_status status = build_schedules(&s, algorithm);
    if (status == RP_OK) {
        plan_chunks(&s, algorithm, bytes, encoded);
        status = lay_out_chunks(&s);
    }
    if (status == RP_OK) status = run(&s);
    if (status == RP_OK) *out_cost = summary(&s);
    simulation_close(&s);
    return status;
}
