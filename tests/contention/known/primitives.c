/*
 * Every primitive of pthread and semaphore.h that a program may meet, each with a result that is wrong
 * if it does not do its work: mutex (normal, recursive, error-checking, try, timed), rwlock, condition
 * variable with and without time limit, barrier, once, spin lock, semaphore, thread-local storage by
 * `__thread` and by key, detached threads, cancellation-free exit by pthread_exit, affinity, clocks, sleep.
 * Prints one line a primitive that failed; the status counts them.
 */
#include "known.h"
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

static int failures;

static void expect(int holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
}

static u64 now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (u64)at.tv_sec * 1000000000u + (u64)at.tv_nsec;
}

static struct timespec after(clockid_t clock, u64 nanoseconds)
{
    u64 at = now(clock) + nanoseconds;
    return (struct timespec){ .tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u) };
}

/* Recursive and error-checking mutexes. */
static void mutexes(void)
{
    pthread_mutexattr_t kind;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &kind);
    expect(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_lock(&mutex) == 0, "recursive lock");
    expect(pthread_mutex_unlock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0, "recursive unlock");
    expect(pthread_mutex_trylock(&mutex) == 0, "recursive trylock after unlock");
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&mutex, &kind);
    expect(pthread_mutex_lock(&mutex) == 0, "error-checking lock");
    expect(pthread_mutex_lock(&mutex) == EDEADLK, "error-checking second lock");
    expect(pthread_mutex_unlock(&mutex) == 0, "error-checking unlock");
    expect(pthread_mutex_unlock(&mutex) == EPERM, "error-checking second unlock");
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_destroy(&kind);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *tries(void *unused)
{
    (void)unused;
    expect(pthread_mutex_trylock(&held) == EBUSY, "trylock of a held mutex");
    struct timespec limit = after(CLOCK_REALTIME, 1000000);
    u64 begin = now(CLOCK_MONOTONIC);
    expect(pthread_mutex_timedlock(&held, &limit) == ETIMEDOUT, "timedlock of a held mutex");
    expect(now(CLOCK_MONOTONIC) - begin >= 900000, "timedlock waits");
    return NULL;
}

static void timed_mutex(void)
{
    pthread_t thread;
    pthread_mutex_lock(&held);
    pthread_create(&thread, NULL, tries, NULL);
    pthread_join(thread, NULL);
    pthread_mutex_unlock(&held);
}

/* Readers together, writers alone. */
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static u64 pair[2];

static void rwlock_body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        if ((turn + me) % 4 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            pair[0]++;
            private_work(me, 5);
            pair[1]++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            u64 first = pair[0];
            private_work(me, 5);
            expect(first == pair[1], "a reader saw half a write");
        }
        pthread_rwlock_unlock(&rwlock);
    }
}

static void rwlocks(void)
{
    run_threads(rwlock_body);
    expect(pair[0] == pair[1], "rwlock");
    expect(pthread_rwlock_tryrdlock(&rwlock) == 0 && pthread_rwlock_trywrlock(&rwlock) == EBUSY, "tryrdlock, trywrlock");
    pthread_rwlock_unlock(&rwlock);
    expect(pthread_rwlock_trywrlock(&rwlock) == 0 && pthread_rwlock_tryrdlock(&rwlock) == EBUSY, "trywrlock, tryrdlock");
    pthread_rwlock_unlock(&rwlock);
}

/* A token goes round; a wait without a signal ends by its limit; a broadcast wakes all. */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_moved = PTHREAD_COND_INITIALIZER;
static u64 turn_of;

static void token_body(unsigned me)
{
    for (u64 round = 0; round < 5; round++) {
        pthread_mutex_lock(&turn_lock);
        while (turn_of % threads_wanted != me)
            pthread_cond_wait(&turn_moved, &turn_lock);
        turn_of++;
        pthread_cond_broadcast(&turn_moved);
        pthread_mutex_unlock(&turn_lock);
    }
}

static void conditions(void)
{
    run_threads(token_body);
    expect(turn_of == 5 * threads_wanted, "condition variable");
    pthread_mutex_lock(&turn_lock);
    struct timespec limit = after(CLOCK_REALTIME, 2000000);
    u64 begin = now(CLOCK_MONOTONIC);
    expect(pthread_cond_timedwait(&turn_moved, &turn_lock, &limit) == ETIMEDOUT, "condition, time limit");
    expect(now(CLOCK_MONOTONIC) - begin >= 1900000, "condition waits");
    pthread_mutex_unlock(&turn_lock);
    pthread_condattr_t attributes;
    pthread_cond_t monotonic;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monotonic, &attributes);
    pthread_mutex_lock(&turn_lock);
    limit = after(CLOCK_MONOTONIC, 2000000);
    expect(pthread_cond_timedwait(&monotonic, &turn_lock, &limit) == ETIMEDOUT, "condition, monotonic limit");
    pthread_mutex_unlock(&turn_lock);
    pthread_cond_destroy(&monotonic);
}

/* All arrive before any leaves, round after round; one is told apart. */
static pthread_barrier_t barrier;
static u64 arrived, serials;

static void barrier_body(unsigned me)
{
    for (u64 round = 1; round <= 10; round++) {
        private_work(me, me % 7);
        __atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_fetch_add(&serials, 1, __ATOMIC_SEQ_CST);
        expect(__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) >= round * threads_wanted, "left a barrier early");
        pthread_barrier_wait(&barrier);
    }
}

static void barriers(void)
{
    pthread_barrier_init(&barrier, NULL, threads_wanted);
    run_threads(barrier_body);
    expect(serials == 10, "one serial thread a barrier");
    pthread_barrier_destroy(&barrier);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static u64 initialised;

static void initialise(void)
{
    private_work(0, 50);
    initialised++;
}

static void once_body(unsigned me)
{
    (void)me;
    pthread_once(&once, initialise);
    expect(__atomic_load_n(&initialised, __ATOMIC_SEQ_CST) == 1, "once");
}

static pthread_spinlock_t spin;
static u64 spun;

static void spin_body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        pthread_spin_lock(&spin);
        spun++;
        pthread_spin_unlock(&spin);
        private_work(me, 10);
    }
}

/* No more than two within at a time. */
static sem_t places;
static u64 within, most;

static void semaphore_body(unsigned me)
{
    for (u64 turn = 0; turn < 20; turn++) {
        sem_wait(&places);
        u64 inside = __atomic_add_fetch(&within, 1, __ATOMIC_SEQ_CST);
        if (inside > __atomic_load_n(&most, __ATOMIC_SEQ_CST))
            __atomic_store_n(&most, inside, __ATOMIC_SEQ_CST);
        private_work(me, 10);
        __atomic_fetch_sub(&within, 1, __ATOMIC_SEQ_CST);
        sem_post(&places);
    }
}

static void semaphores(void)
{
    int value = 0;
    sem_init(&places, 0, 2);
    run_threads(semaphore_body);
    sem_getvalue(&places, &value);
    expect(most <= 2 && value == 2, "semaphore");
    sem_wait(&places);
    sem_wait(&places);
    expect(sem_trywait(&places) == -1 && errno == EAGAIN, "sem_trywait");
    struct timespec limit = after(CLOCK_REALTIME, 1000000);
    expect(sem_timedwait(&places, &limit) == -1 && errno == ETIMEDOUT, "sem_timedwait");
    sem_destroy(&places);
}

/* Variables of a thread, and what is done at its end. */
static __thread u64 mine;
static pthread_key_t key;
static u64 destroyed;

static void destroy(void *value)
{
    __atomic_fetch_add(&destroyed, *(u64 *)value, __ATOMIC_SEQ_CST);
    free(value);
}

static void local_body(unsigned me)
{
    u64 *value = malloc(sizeof *value);
    *value = me + 1;
    pthread_setspecific(key, value);
    for (u64 turn = 0; turn < operations; turn++) {
        mine += me + 1;
        private_work(me, 3);
    }
    expect(mine == operations * (me + 1), "__thread");
    expect(*(u64 *)pthread_getspecific(key) == me + 1, "pthread_getspecific");
}

static void locals(void)
{
    pthread_key_create(&key, destroy);
    run_threads(local_body);
    expect(destroyed == (u64)threads_wanted * (threads_wanted + 1) / 2, "destructors of thread keys");
}

/* Threads that nobody joins. */
static sem_t left;

static void *leaves(void *argument)
{
    private_work((unsigned)(uintptr_t)argument, 20);
    sem_post(&left);
    return NULL;
}

static void detached(void)
{
    pthread_attr_t attributes;
    sem_init(&left, 0, 0);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (unsigned me = 0; me < threads_wanted; me++) {
        pthread_t thread;
        if (me % 2 == 0) {
            pthread_create(&thread, &attributes, leaves, (void *)(uintptr_t)me);
        } else {
            pthread_create(&thread, NULL, leaves, (void *)(uintptr_t)me);
            pthread_detach(thread);
        }
    }
    for (unsigned me = 0; me < threads_wanted; me++)
        sem_wait(&left);
}

static void *ends(void *argument)
{
    if (argument != NULL)
        pthread_exit((void *)7);
    return (void *)9;
}

static void results(void)
{
    pthread_t thread;
    void *value = NULL;
    pthread_create(&thread, NULL, ends, (void *)1);
    pthread_join(thread, &value);
    expect(value == (void *)7, "pthread_exit");
    pthread_create(&thread, NULL, ends, NULL);
    pthread_join(thread, &value);
    expect(value == (void *)9, "a thread's result");
}

static void clocks(void)
{
    u64 begin = now(CLOCK_MONOTONIC);
    struct timespec nap = { .tv_nsec = 5000000 };
    expect(nanosleep(&nap, NULL) == 0, "nanosleep");
    u64 slept = now(CLOCK_MONOTONIC) - begin;
    expect(slept >= 5000000, "sleeps that long");
    begin = now(CLOCK_MONOTONIC);
    usleep(1000);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
    struct timespec until = after(CLOCK_MONOTONIC, 2000000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    expect(now(CLOCK_MONOTONIC) - begin >= 8000000, "usleep, clock_nanosleep");
    begin = now(CLOCK_MONOTONIC);
    private_work(0, 10000);
    expect(now(CLOCK_MONOTONIC) > begin, "work takes time");
    sched_yield();
}

static void affinity(void)
{
    cpu_set_t set, found;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    expect(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
    expect(sched_getaffinity(0, sizeof found, &found) == 0 && CPU_COUNT(&found) == 1, "sched_getaffinity");
    sched_yield();
    expect(sched_getcpu() == 0, "sched_getcpu");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    for (long core = 0; core < cores && core < CPU_SETSIZE; core++)
        CPU_SET((int)core, &set);
    expect(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity of all");
}

int main(int count, char **words)
{
    arguments(count, words, 40);
    mutexes();
    timed_mutex();
    rwlocks();
    conditions();
    barriers();
    run_threads(once_body);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    run_threads(spin_body);
    expect(spun == operations * threads_wanted, "pthread_spinlock_t");
    semaphores();
    locals();
    detached();
    results();
    clocks();
    affinity();
    return result("failures", (u64)failures, 0);
}
