/* Each thread pins an epoch for each step and unpins it again, and sometimes one moves it on: nobody waits, and no word is a
 * lock. */
#include "known.h"

static struct {
    u64 now;
} epochs ALIGNED;

static struct {
    u64 pinned;
} ALIGNED mine[THREADS_MAX];

static void advance(void)
{
    u64 now = __atomic_load_n(&epochs.now, __ATOMIC_SEQ_CST);
    for (unsigned other = 0; other < threads_wanted; other++) {
        u64 pinned = __atomic_load_n(&mine[other].pinned, __ATOMIC_ACQUIRE);
        if ((pinned & 1) && pinned >> 1 != now)
            return;
    }
    __atomic_compare_exchange_n(&epochs.now, &now, now + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static void body(unsigned me)
{
    for (u64 step = 0; step < operations; step++) {
        u64 now = __atomic_load_n(&epochs.now, __ATOMIC_SEQ_CST);
        __atomic_store_n(&mine[me].pinned, now << 1 | 1, __ATOMIC_SEQ_CST);
        private_work(me, 4);
        __atomic_store_n(&mine[me].pinned, 0, __ATOMIC_RELEASE);
        if (step % 16 == 0)
            advance();
    }
}

int main(int count, char **words)
{
    arguments(count, words, 400);
    run_threads(body);
    return result("moved on", epochs.now > 0, 1);
}
