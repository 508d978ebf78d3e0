/* A table of 256 KiB, which the allocator maps, made before the threads: it lies just above the first one's stack. */
#include <pthread.h>
#include <stdlib.h>

struct entry { unsigned long hits, misses; };

static struct entry *table;

static void *worker(void *argument) {
    for (int i = 0; i < 500; i++)
        __atomic_fetch_add(&table[(long)argument].hits, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    table = calloc(16384, sizeof *table);
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
