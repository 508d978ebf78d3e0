/*
 * Two counters, each with its own half of the threads. On one line every increment takes the line from
 * a thread that never touches that counter: false sharing. -DAPART gives `b` a line of its own.
 */
#include "known.h"

struct Counters {
    u64 a;
#ifdef APART
    u64 b ALIGNED;
#else
    u64 b;
#endif
} ALIGNED;

static struct Counters counters;

static NOINLINE void count_a(void)
{
    __atomic_fetch_add(&counters.a, 1, __ATOMIC_RELAXED);
}

static NOINLINE void count_b(void)
{
    __atomic_fetch_add(&counters.b, 1, __ATOMIC_RELAXED);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        if (me % 2 == 0)
            count_a();
        else
            count_b();
        private_work(me, 8);
    }
}

int main(int count, char **words)
{
    arguments(count, words, 400);
    run_threads(body);
    return result("counted", counters.a + counters.b, operations * threads_wanted);
}
