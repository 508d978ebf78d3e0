/*
 * A packed record whose counter lies across two lines: one access, two lines. Threads take turns by a
 * mutex, so that the result is exact.
 */
#include "known.h"

struct Record {
    char name[60];
    u64 total;
} __attribute__((packed));

static struct Record record ALIGNED;
static pthread_mutex_t lock ALIGNED = PTHREAD_MUTEX_INITIALIZER;

static NOINLINE void add(u64 value)
{
    record.total += value;
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        pthread_mutex_lock(&lock);
        add(1);
        pthread_mutex_unlock(&lock);
        private_work(me, 50);
    }
}

int main(int count, char **words)
{
    arguments(count, words, 200);
    run_threads(body);
    return result("total", record.total, operations * threads_wanted);
}
