/*
 * A counter for each thread, in one array of 8-byte slots: eight threads share a line and nothing else.
 * -DAPART gives each slot its own line: linear.
 */
#include "known.h"

#ifdef APART
struct Slot {
    u64 hits;
} ALIGNED;
#else
struct Slot {
    u64 hits;
};
#endif

static struct Slot slots[THREADS_MAX] ALIGNED;

static NOINLINE void hit(unsigned me)
{
    __atomic_fetch_add(&slots[me].hits, 1, __ATOMIC_RELAXED);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        hit(me);
        private_work(me, 16);
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 400);
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        sum += slots[me].hits;
    return result("hits", sum, operations * threads_wanted);
}
