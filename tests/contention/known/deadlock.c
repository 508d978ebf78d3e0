/* Two threads, two locks, opposite orders, and a barrier that makes sure of it. It never ends. */
#include "known.h"

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static NOINLINE void left_then_right(void)
{
    pthread_mutex_lock(&left);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&right);
}

static NOINLINE void right_then_left(void)
{
    pthread_mutex_lock(&right);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&left);
}

static void body(unsigned me)
{
    if (me == 0)
        left_then_right();
    else
        right_then_left();
}

int main(void)
{
    threads_wanted = 2;
    operations = 1;
    pthread_barrier_init(&both, NULL, 2);
    run_threads(body);
    return result("never", 0, 1);
}
