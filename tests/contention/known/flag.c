/*
 * A flag that everybody reads and nobody writes, beside a counter that everybody writes: the reads of
 * `flag` are false sharing, the increments true. -DAPART puts the flag on a line of its own.
 */
#include "known.h"

struct Service {
    u64 requests;
#ifdef APART
    uint32_t flag ALIGNED;
#else
    uint32_t flag;
#endif
} ALIGNED;

static struct Service service;
static u64 seen[THREADS_MAX][8] ALIGNED;

static NOINLINE int enabled(void)
{
    return __atomic_load_n(&service.flag, __ATOMIC_RELAXED) != 0;
}

static NOINLINE void count_request(void)
{
    __atomic_fetch_add(&service.requests, 1, __ATOMIC_RELAXED);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        for (unsigned look = 0; look < 4; look++) {
            seen[me][0] += (u64)enabled();
            private_work(me, 25);
        }
        count_request();
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 100);
    service.flag = 1;
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        sum += seen[me][0];
    return result("seen", sum + service.requests, operations * threads_wanted * 5);
}
