/* A bounded queue with two condition variables: half of the threads put, half take. */
#include "known.h"

#define ROOM 16

struct Queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_cond_t emptied;
    u64 head, tail;
    u64 items[ROOM];
} ALIGNED;

static struct Queue queue = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .filled = PTHREAD_COND_INITIALIZER,
    .emptied = PTHREAD_COND_INITIALIZER,
};
static u64 taken[THREADS_MAX][8] ALIGNED;

static NOINLINE void put(u64 item)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.head - queue.tail == ROOM)
        pthread_cond_wait(&queue.emptied, &queue.lock);
    queue.items[queue.head++ % ROOM] = item;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

static NOINLINE u64 take(void)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.head == queue.tail)
        pthread_cond_wait(&queue.filled, &queue.lock);
    u64 item = queue.items[queue.tail++ % ROOM];
    pthread_cond_signal(&queue.emptied);
    pthread_mutex_unlock(&queue.lock);
    return item;
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        if (me % 2 == 0)
            put(turn + 1);
        else
            taken[me][0] += take();
        private_work(me, 50);
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 100);
    threads_wanted += threads_wanted % 2;
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        sum += taken[me][0];
    return result("taken", sum, threads_wanted / 2 * operations * (operations + 1) / 2);
}
