/* One counter for all: true sharing; as many increments a second as the line can move. A plateau. */
#include "known.h"

struct Statistics {
    u64 requests;
} ALIGNED;

static struct Statistics statistics;

static NOINLINE void count_request(void)
{
    __atomic_fetch_add(&statistics.requests, 1, __ATOMIC_RELAXED);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        count_request();
        private_work(me, 50);
    }
}

int main(int count, char **words)
{
    arguments(count, words, 400);
    run_threads(body);
    return result("requests", statistics.requests, operations * threads_wanted);
}
