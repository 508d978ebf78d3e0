/* Threads write one block, through functions of the C library alone. `volatile` keeps the compiler from inlining them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64, TURNS = 200 };

static struct block { char text[BYTES]; } *block;
static char sources[8][BYTES];

static void *worker(void *argument) {
    char *mine = sources[(long)argument];
    volatile size_t bytes = BYTES;
    for (int i = 0; i < TURNS; i++) {
#if defined(FILL)
        memset(block->text, i, bytes);
#elif defined(MOVE)
        memmove(block->text, mine, bytes);
#elif defined(STRING)
        strcpy(block->text, mine);
#else
        memcpy(block->text, mine, bytes);
#endif
    }
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    block = aligned_alloc(64, sizeof *block);
    for (long i = 0; i < 8; i++) {
        memset(sources[i], 'a' + (int)i, BYTES - 1);
        pthread_create(&threads[i], NULL, worker, (void *)i);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return block->text[5] == 0;
}
