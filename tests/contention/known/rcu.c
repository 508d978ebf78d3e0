/*
 * Readers follow one pointer and say so in a word of their own; nobody writes what they read. Linear,
 * and no transfers after the first reads. -DCOUNTED makes every reader count itself on the table's own
 * line, `table.readers`, beside what it reads.
 */
#include "known.h"

struct Table {
    u64 *entries;
    u64 mask;
    u64 readers;
} ALIGNED;

struct Reader {
    u64 inside;
} ALIGNED;

static struct Table table;
static struct Reader readers[THREADS_MAX];
static u64 sums[THREADS_MAX][8] ALIGNED;

static NOINLINE u64 lookup(unsigned me, u64 key)
{
#ifdef COUNTED
    (void)me;
    __atomic_fetch_add(&table.readers, 1, __ATOMIC_ACQUIRE);
#else
    __atomic_store_n(&readers[me].inside, 1, __ATOMIC_RELAXED);
#endif
    u64 *entries = __atomic_load_n(&table.entries, __ATOMIC_ACQUIRE);
    u64 value = entries[key & table.mask];
#ifdef COUNTED
    __atomic_fetch_sub(&table.readers, 1, __ATOMIC_RELEASE);
#else
    __atomic_store_n(&readers[me].inside, 0, __ATOMIC_RELEASE);
#endif
    return value;
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        sums[me][0] += lookup(me, turn * 7 + me);
        private_work(me, 100);
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 200);
    table.mask = 63;
    table.entries = aligned_alloc(LINE, 64 * sizeof(u64));
    for (unsigned entry = 0; entry < 64; entry++)
        table.entries[entry] = 3;
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        sum += sums[me][0];
    return result("sum", sum, operations * threads_wanted * 3);
}
