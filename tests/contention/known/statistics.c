/* The program of the tutorial: eight counters on two lines, each of one thread. -DAPART gives each a line. */
#include <pthread.h>
#include <stdlib.h>

#ifdef APART
#define ALIGNED _Alignas(64)
#else
#define ALIGNED
#endif

struct statistics { struct { ALIGNED unsigned long count; } hits[8]; };

static struct statistics *statistics;

static void *worker(void *argument) {
    for (int i = 0; i < 1000; i++)
        __atomic_fetch_add(&statistics->hits[(long)argument].count, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    statistics = aligned_alloc(64, sizeof *statistics);
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
