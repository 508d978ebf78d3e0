/*
 * What the programs of this folder share. Each is a whole program: threads (first argument, else as many
 * as the machine has cores) do a fixed number of operations each (second argument), and the result is
 * checked at the end, so that an analyser which changes what a program computes is found out.
 *
 * The answer, that is the class of the curve and the fields that bend it, is known beforehand; the test
 * that holds them together is crates/contention/tests/known.rs.
 */
#ifndef KNOWN_H
#define KNOWN_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 64
#define ALIGNED __attribute__((aligned(LINE)))
#define NOINLINE __attribute__((noinline))
#define THREADS_MAX 1024

typedef uint64_t u64;

static unsigned threads_wanted;
static u64 operations;
static pthread_barrier_t start_line;

/* Memory that no other thread touches, and the steps of work that a thread does in it. */
struct own {
    u64 steps[16];
} ALIGNED;

static struct own own_memory[THREADS_MAX];

/* `steps` reads and writes of the thread's own line pair: private work between two operations. */
static NOINLINE void private_work(unsigned me, unsigned steps)
{
    volatile u64 *own = own_memory[me].steps;
    for (unsigned step = 0; step < steps; step++)
        own[step % 16] += step;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void arguments(int count, char **words, u64 default_operations)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    threads_wanted = count > 1 ? (unsigned)atoi(words[1]) : (unsigned)cores;
    operations = count > 2 ? (u64)atoll(words[2]) : default_operations;
    if (threads_wanted == 0 || threads_wanted > THREADS_MAX) {
        fprintf(stderr, "threads: 1 to %d\n", THREADS_MAX);
        exit(2);
    }
}

static void (*thread_body)(unsigned me);

static void *thread_main(void *argument)
{
    pthread_barrier_wait(&start_line);
    thread_body((unsigned)(uintptr_t)argument);
    return NULL;
}

/* Runs `body(0)` to `body(threads - 1)` in threads that begin together, and waits for them. */
static void run_threads(void (*body)(unsigned me))
{
    static pthread_t threads[THREADS_MAX];
    thread_body = body;
    pthread_barrier_init(&start_line, NULL, threads_wanted);
    for (unsigned me = 0; me < threads_wanted; me++)
        if (pthread_create(&threads[me], NULL, thread_main, (void *)(uintptr_t)me) != 0) {
            perror("pthread_create");
            exit(2);
        }
    for (unsigned me = 0; me < threads_wanted; me++)
        pthread_join(threads[me], NULL);
}

/* The program's exit status: 0 if it computed what it should have. */
static int result(const char *what, u64 found, u64 expected)
{
    printf("%s %llu of %llu\n", what, (unsigned long long)found, (unsigned long long)expected);
    return found == expected ? 0 : 1;
}

#endif
