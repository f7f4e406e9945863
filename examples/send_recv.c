/* A pool of workers: rank 0 deals out tasks to whoever asks, and the others work until told to
 * stop. Tags tell requests, tasks and results apart, and rank 0 receives from any rank.
 *
 *     cc send_recv.c $(pkg-config --cflags --libs redpoll) -o send_recv
 *     redpoll run -n 3 ./send_recv             also under torchrun --no-python, mpirun, srun
 */
#include <redpoll/redpoll.h>

#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 20, STOP = -1 };
enum { TAG_RESULT, TAG_TASK };

typedef struct result {
    int64_t task; /* STOP: none yet, the worker only asks for its first */
    int64_t answer;
} result;

/* Say what went wrong and end: all other ranks then end too, with this rank's name. */
static void must(rp_status status) {
    if (status == RP_OK) return;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    exit(1);
}

/* Primes below `task` thousand: some tasks take longer than others. */
static int64_t primes_below(int64_t task) {
    int64_t found = 0;
    for (int64_t n = 2; n < 1000 * task; n++) {
        int64_t divisor = 2;
        while (divisor * divisor <= n && n % divisor) divisor++;
        found += divisor * divisor > n;
    }
    return found;
}

static void work(rp_comm *comm) {
    result last = {STOP, 0};
    int64_t task, done = 0;
    for (;;) {
        must(rp_send(comm, &last, sizeof last / sizeof(int64_t), RP_I64, 0, TAG_RESULT));
        must(rp_recv(comm, &task, 1, RP_I64, 0, TAG_TASK));
        if (task == STOP) break;
        last = (result){task, primes_below(task)};
        done++;
    }
    printf("rank %d has done %lld tasks\n", rp_comm_rank(comm), (long long)done);
}

/* The next result, whoever it comes from. */
static int receive_any(rp_comm *comm, result *out_result) {
    rp_request *request = NULL;
    must(rp_recv_any_start(comm, out_result, sizeof *out_result / sizeof(int64_t), RP_I64,
                           TAG_RESULT, &request));
    must(rp_request_wait_for(request, -1)); /* keeps the request, to ask it for the source */
    int source = rp_request_source(request);
    must(rp_request_free(&request));
    return source;
}

static int64_t deal(rp_comm *comm) {
    int64_t next = 1, total = 0;
    for (int idle = 1; idle < rp_comm_world(comm);) {
        result last;
        int worker = receive_any(comm, &last);
        if (last.task != STOP) total += last.answer;
        int64_t task = next <= TASKS ? next++ : STOP;
        if (task == STOP) idle++;
        must(rp_send(comm, &task, 1, RP_I64, worker, TAG_TASK));
    }
    return total;
}

int main(void) {
    rp_comm *comm;
    int right = 1;
    must(rp_comm_join(NULL, &comm));
    if (rp_comm_rank(comm) > 0) {
        work(comm);
    } else if (rp_comm_world(comm) > 1) {
        int64_t total = deal(comm), alone = 0;
        for (int64_t task = 1; task <= TASKS; task++) alone += primes_below(task);
        right = total == alone;
        printf("%d tasks, %lld primes in all\n", TASKS, (long long)total);
        if (!right) fprintf(stderr, "one rank alone finds %lld\n", (long long)alone);
    }
    rp_comm_destroy(comm);
    return right ? 0 : 1;
}
