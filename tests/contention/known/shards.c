/*
 * A table in shards, each with its lock and on lines of its own; a thread works in the shard of its
 * number. Linear. -DONE gives all threads one shard.
 */
#include "known.h"

#define SLOTS 16

struct Shard {
    pthread_spinlock_t lock ALIGNED;
    u64 values[SLOTS] ALIGNED;
};

static struct Shard *shards;

static NOINLINE void put(struct Shard *shard, u64 key)
{
    pthread_spin_lock(&shard->lock);
    shard->values[key % SLOTS]++;
    pthread_spin_unlock(&shard->lock);
}

static void body(unsigned me)
{
#ifdef ONE
    struct Shard *shard = &shards[0];
#else
    struct Shard *shard = &shards[me];
#endif
    for (u64 turn = 0; turn < operations; turn++) {
        put(shard, turn);
        private_work(me, 100);
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 200);
    shards = aligned_alloc(LINE, sizeof(struct Shard) * threads_wanted);
    for (unsigned me = 0; me < threads_wanted; me++) {
        pthread_spin_init(&shards[me].lock, PTHREAD_PROCESS_PRIVATE);
        memset(shards[me].values, 0, sizeof shards[me].values);
    }
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        for (unsigned slot = 0; slot < SLOTS; slot++)
            sum += shards[me].values[slot];
    return result("values", sum, operations * threads_wanted);
}
