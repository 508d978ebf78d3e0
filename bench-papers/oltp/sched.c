/* Run queues, one a processor, and wake-ups from other processors. */
#include "oltp.h"

struct run_queue {
    spinlock_t lock;
    unsigned nr_running;
    uint64_t load;
    uint64_t cpu_load[3];
    uint64_t nr_switches;
    struct task *curr;
    struct task *idle;
    struct list tasks;
    uint64_t ttwu_count;
    uint64_t ttwu_local;
};

/* Where a processor with nothing to do waits. */
struct idle_place {
    pthread_mutex_t lock;
    pthread_cond_t kicked;
    unsigned sleeping;
    unsigned kicks;
};

unsigned processors;
static struct run_queue *run_queues;
static struct idle_place *idle_places;
static unsigned done;

void sched_init(void)
{
    /* Neither is aligned to a line, nor a multiple of one. */
    run_queues = calloc(processors, sizeof(struct run_queue));
    idle_places = calloc(processors, sizeof(struct idle_place));
    for (unsigned which = 0; which < processors; which++) {
        list_init(&run_queues[which].tasks);
        pthread_mutex_init(&idle_places[which].lock, NULL);
        pthread_cond_init(&idle_places[which].kicked, NULL);
    }
}

/* Whether a processor has nothing to do, as its sibling asks before it gives it work. */
NOINLINE bool idle_processor(unsigned which)
{
    struct run_queue *rq = &run_queues[which];
    return __atomic_load_n(&rq->curr, __ATOMIC_RELAXED) == __atomic_load_n(&rq->idle, __ATOMIC_RELAXED);
}

static NOINLINE void activate_task(struct run_queue *rq, struct task *task)
{
    list_add_tail(&task->queued, &rq->tasks);
    __atomic_store_n(&rq->nr_running, rq->nr_running + 1, __ATOMIC_SEQ_CST);
    rq->load += 128;
}

NOINLINE void try_to_wake_up(struct task *task, unsigned from)
{
    unsigned target = task->home, sibling = (target ^ 1) % processors;
    /* A busy processor's task goes to its sibling, if that one is idle. */
    if (!idle_processor(target) && idle_processor(sibling))
        target = sibling;
    struct run_queue *rq = &run_queues[target];
    spin_lock(&rq->lock);
    task->home = target;
    activate_task(rq, task);
    rq->ttwu_count++;
    if (target == from)
        rq->ttwu_local++;
    spin_unlock(&rq->lock);
    idle_kick(target);
}

NOINLINE struct task *schedule(unsigned me)
{
    struct run_queue *rq = &run_queues[me];
    struct task *next = NULL;
    spin_lock(&rq->lock);
    if (!list_empty(&rq->tasks)) {
        next = container(rq->tasks.next, struct task, queued);
        list_del(&next->queued);
        __atomic_store_n(&rq->nr_running, rq->nr_running - 1, __ATOMIC_SEQ_CST);
        rq->load -= 128;
    }
    rq->cpu_load[rq->nr_switches % 3] = rq->load;
    rq->nr_switches++;
    __atomic_store_n(&rq->curr, next, __ATOMIC_RELAXED);
    spin_unlock(&rq->lock);
    return next;
}

NOINLINE void idle_wait(unsigned me)
{
    struct idle_place *place = &idle_places[me];
    pthread_mutex_lock(&place->lock);
    __atomic_store_n(&place->sleeping, 1, __ATOMIC_SEQ_CST);
    /* Whoever gives work writes it first and looks at `sleeping` then; we do it the other way round. */
    while (place->kicks == 0 && __atomic_load_n(&run_queues[me].nr_running, __ATOMIC_SEQ_CST) == 0 &&
           !block_pending(me) && !finished())
        pthread_cond_wait(&place->kicked, &place->lock);
    place->kicks = 0;
    __atomic_store_n(&place->sleeping, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&place->lock);
}

NOINLINE void idle_kick(unsigned which)
{
    struct idle_place *place = &idle_places[which];
    if (__atomic_load_n(&place->sleeping, __ATOMIC_SEQ_CST) == 0)
        return;
    pthread_mutex_lock(&place->lock);
    place->kicks++;
    pthread_cond_signal(&place->kicked);
    pthread_mutex_unlock(&place->lock);
}

bool finished(void)
{
    return __atomic_load_n(&done, __ATOMIC_SEQ_CST) != 0;
}

void finish(void)
{
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    for (unsigned which = 0; which < processors; which++) {
        pthread_mutex_lock(&idle_places[which].lock);
        idle_places[which].kicks++;
        pthread_cond_signal(&idle_places[which].kicked);
        pthread_mutex_unlock(&idle_places[which].lock);
    }
}
