/* A pool that is idle most of the time, whose workers wait for work at a condition; a semaphore that says that it is done; a
 * barrier at the end. The mutex is free nearly always: what is waited for is work. */
#include "known.h"
#include <semaphore.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;
    unsigned queued, stop;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static sem_t tokens;
static pthread_barrier_t finish;
static u64 done;

static NOINLINE int take_job(void)
{
    pthread_mutex_lock(&pool.lock);
    while (!pool.queued && !pool.stop)
        pthread_cond_wait(&pool.work, &pool.lock);
    int found = pool.queued > 0;
    pool.queued -= found;
    pthread_mutex_unlock(&pool.lock);
    return found;
}

static NOINLINE void hand_out(unsigned me)
{
    for (u64 job = 0; job < operations; job++) {
        private_work(me, 5000);
        pthread_mutex_lock(&pool.lock);
        pool.queued++;
        pthread_cond_signal(&pool.work);
        pthread_mutex_unlock(&pool.lock);
        sem_wait(&tokens);
    }
    pthread_mutex_lock(&pool.lock);
    pool.stop = 1;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

static NOINLINE void all_meet(void)
{
    pthread_barrier_wait(&finish);
}

static void body(unsigned me)
{
    if (me == 0)
        hand_out(me);
    else
        while (take_job()) {
            private_work(me, 100);
            __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
            sem_post(&tokens);
        }
    all_meet();
}

int main(int count, char **words)
{
    arguments(count, words, 20);
    sem_init(&tokens, 0, 0);
    pthread_barrier_init(&finish, NULL, threads_wanted);
    run_threads(body);
    return result("jobs", done, operations);
}
