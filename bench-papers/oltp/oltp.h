/*
 * A small database server on a small kernel, for the contention analyser: foreground tasks read rows,
 * submit I/O, sleep, are woken by whoever completes it, and commit through one log.
 *
 * After the workload of Gough, Siddha and Chen (2007). It has what their figures are about, each in a
 * file of its own: run queues (sched.c), timers (timer.c), slabs (slab.c), asynchronous I/O (aio.c), block
 * devices with tags (block.c), a log with group commit (log.c), and the transactions (main.c). One thread
 * is one processor. I/O is submitted on one processor and completed on another, as interrupts did.
 *
 * Layouts are as a programmer would write them who does not think of cache lines; that is the point.
 * It computes something: balances are moved between accounts and their sum is checked at the end.
 */
#ifndef OLTP_H
#define OLTP_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESSORS_MAX 1024
#define NOINLINE __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    uint32_t word;
} spinlock_t;

INLINE void spin_lock(spinlock_t *lock)
{
    for (;;) {
        uint32_t open = 0;
        while (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) != 0)
            __builtin_ia32_pause();
        if (__atomic_compare_exchange_n(&lock->word, &open, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
    }
}

INLINE void spin_unlock(spinlock_t *lock)
{
    __atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}

/* Doubly linked, in a ring with its head. */
struct list {
    struct list *next, *prev;
};

INLINE void list_init(struct list *head)
{
    head->next = head->prev = head;
}

INLINE bool list_empty(const struct list *head)
{
    return head->next == head;
}

INLINE void list_add_tail(struct list *entry, struct list *head)
{
    struct list *last = head->prev;
    entry->next = head;
    entry->prev = last;
    last->next = entry;
    head->prev = entry;
}

INLINE void list_del(struct list *entry)
{
    entry->next->prev = entry->prev;
    entry->prev->next = entry->next;
    entry->next = entry->prev = NULL;
}

#define container(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

struct request;

/* sched.c */
enum state { BEGIN, READ, COMMITTED };

struct task {
    struct list queued;
    enum state state;
    unsigned home;
    uint64_t number;
    uint64_t transactions;
    struct request *request;
};

extern unsigned processors;
void sched_init(void);
void try_to_wake_up(struct task *task, unsigned from);
struct task *schedule(unsigned me);
bool idle_processor(unsigned which);
void idle_wait(unsigned me);
void idle_kick(unsigned which);
bool finished(void);
void finish(void);

/* timer.c */
struct timer {
    struct list queued;
    unsigned base;
    uint64_t expires;
};

void timer_init(void);
void mod_timer(struct timer *timer, unsigned me, uint64_t ticks);
void del_timer(struct timer *timer);
void run_timers(unsigned me);

/* slab.c */
void slab_init(void);
struct request *request_alloc(unsigned me);
void request_free(struct request *request, unsigned me);

/* aio.c */
struct request {
    struct list queued;
    struct list active;
    struct timer timer;
    struct task *task;
    uint64_t sector;
    unsigned device;
    unsigned tag;
    unsigned owner;
    unsigned result;
};

void aio_init(void);
void aio_submit(struct request *request);
void aio_complete(struct request *request, unsigned me);
uint64_t aio_events(void);

/* block.c */
void block_init(void);
void block_submit(struct request *request, unsigned me);
bool block_interrupt(unsigned me);
bool block_pending(unsigned me);

/* log.c */
void log_init(void);
void log_commit(struct task *task);
void log_start(void);
void log_stop(void);
uint64_t log_records(void);

#endif
