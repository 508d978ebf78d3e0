/* The log: every transaction ends with a record in it, and sleeps until a writer wrote many at once. */
#include "oltp.h"

struct log {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct list waiting;
    uint64_t records;
    uint64_t bytes;
    uint64_t flushes;
    bool stop;
};

static struct log wal;
static pthread_t writer;

void log_init(void)
{
    pthread_mutex_init(&wal.lock, NULL);
    pthread_cond_init(&wal.filled, NULL);
    list_init(&wal.waiting);
}

NOINLINE void log_commit(struct task *task)
{
    pthread_mutex_lock(&wal.lock);
    bool first = list_empty(&wal.waiting);
    list_add_tail(&task->queued, &wal.waiting);
    wal.records++;
    wal.bytes += 200;
    if (first)
        pthread_cond_signal(&wal.filled);
    pthread_mutex_unlock(&wal.lock);
}

/* Takes all that wait, writes them, and wakes each. */
static NOINLINE void log_flush(struct list *batch)
{
    usleep(5);
    while (!list_empty(batch)) {
        struct task *task = container(batch->next, struct task, queued);
        list_del(&task->queued);
        try_to_wake_up(task, PROCESSORS_MAX);
    }
}

static void *log_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&wal.lock);
    while (!wal.stop) {
        if (list_empty(&wal.waiting)) {
            pthread_cond_wait(&wal.filled, &wal.lock);
            continue;
        }
        struct list batch = wal.waiting;
        batch.next->prev = batch.prev->next = &batch;
        list_init(&wal.waiting);
        wal.flushes++;
        pthread_mutex_unlock(&wal.lock);
        log_flush(&batch);
        pthread_mutex_lock(&wal.lock);
    }
    pthread_mutex_unlock(&wal.lock);
    return NULL;
}

void log_start(void)
{
    pthread_create(&writer, NULL, log_main, NULL);
}

void log_stop(void)
{
    pthread_mutex_lock(&wal.lock);
    wal.stop = true;
    pthread_cond_signal(&wal.filled);
    pthread_mutex_unlock(&wal.lock);
    pthread_join(writer, NULL);
}

uint64_t log_records(void)
{
    return wal.records;
}
