/* Contexts of asynchronous I/O, one for every four processors: submitted in one path, completed in another. */
#include "oltp.h"

#define RING 256

struct aio_context {
    uint32_t users;
    bool dead;
    void *owner;
    spinlock_t lock;
    uint32_t requests_active;
    struct list active;
    uint32_t ring_tail;
    uint32_t ring_pages;
    uint64_t events;
    uint64_t ring[RING];
};

static struct aio_context *contexts;
static unsigned context_count;

void aio_init(void)
{
    context_count = (processors + 3) / 4;
    contexts = calloc(context_count, sizeof(struct aio_context));
    for (unsigned which = 0; which < context_count; which++) {
        contexts[which].owner = contexts;
        contexts[which].ring_pages = 1;
        list_init(&contexts[which].active);
    }
}

/* The context of the process that a task belongs to. */
static struct aio_context *context_of(const struct task *task)
{
    return &contexts[task->number % context_count];
}

NOINLINE void aio_submit(struct request *request)
{
    struct aio_context *context = context_of(request->task);
    __atomic_fetch_add(&context->users, 1, __ATOMIC_ACQUIRE);
    if (context->owner == NULL || context->dead)
        abort();
    spin_lock(&context->lock);
    list_add_tail(&request->active, &context->active);
    context->requests_active++;
    spin_unlock(&context->lock);
    __atomic_fetch_sub(&context->users, 1, __ATOMIC_RELEASE);
}

NOINLINE void aio_complete(struct request *request, unsigned me)
{
    struct task *task = request->task;
    struct aio_context *context = context_of(task);
    spin_lock(&context->lock);
    list_del(&request->active);
    context->requests_active--;
    context->ring[context->ring_tail++ % (RING * context->ring_pages)] = request->sector;
    context->events++;
    spin_unlock(&context->lock);
    try_to_wake_up(task, me);
}

uint64_t aio_events(void)
{
    uint64_t events = 0;
    for (unsigned which = 0; which < context_count; which++)
        events += contexts[which].events;
    return events;
}
