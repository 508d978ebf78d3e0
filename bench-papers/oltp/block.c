/*
 * Block devices, one for every four processors: a queue, tags, and a host that all of them share. Another
 * processor than the submitting one takes the interrupt.
 */
#include "oltp.h"

#define TAGS 32

/* 40 bytes: one or two to a line, and some across two. */
struct tag {
    uint32_t busy;
    uint32_t uses;
    struct request *request;
    uint64_t sector;
    uint64_t started;
    uint64_t latency;
};

struct device_queue {
    uint64_t flags;
    spinlock_t lock;
    uint32_t device_busy;
    struct list waiting;
    uint64_t sectors;
    struct tag tags[TAGS];
};

/* Of all devices. */
struct host {
    spinlock_t free_list_lock;
    uint32_t host_busy;
    uint32_t can_queue;
    uint32_t unique;
    void *command_pool;
    uint32_t host_blocked;
    uint32_t self_blocked;
};

static unsigned devices;
static struct device_queue *queues;
static struct host *host;

void block_init(void)
{
    devices = (processors + 3) / 4;
    queues = calloc(devices, sizeof(struct device_queue));
    host = calloc(1, sizeof(struct host));
    host->can_queue = UINT32_MAX;
    for (unsigned which = 0; which < devices; which++) {
        list_init(&queues[which].waiting);
        queues[which].flags = 1;
    }
}

/* The processor that is told of a device's completions. */
static unsigned interrupted(unsigned device)
{
    return (device * 4 + 1) % processors;
}

static NOINLINE void host_dispatch(void)
{
    if (host->command_pool == host || host->host_blocked || host->self_blocked)
        abort();
    spin_lock(&host->free_list_lock);
    host->unique++;
    spin_unlock(&host->free_list_lock);
    __atomic_fetch_add(&host->host_busy, 1, __ATOMIC_RELAXED);
}

NOINLINE void block_submit(struct request *request, unsigned me)
{
    unsigned device = (unsigned)(request->sector % devices);
    struct device_queue *queue = &queues[device];
    request->device = device;
    mod_timer(&request->timer, me, 30);
    host_dispatch();
    if ((__atomic_load_n(&queue->flags, __ATOMIC_RELAXED) & 1) == 0)
        abort();
    spin_lock(&queue->lock);
    list_add_tail(&request->queued, &queue->waiting);
    __atomic_store_n(&queue->device_busy, queue->device_busy + 1, __ATOMIC_SEQ_CST);
    for (unsigned probe = 0; probe < TAGS; probe++) {
        struct tag *tag = &queue->tags[(request->sector + probe) % TAGS];
        if (__atomic_load_n(&tag->busy, __ATOMIC_ACQUIRE) == 0) {
            tag->busy = 1;
            tag->uses++;
            tag->request = request;
            tag->sector = request->sector;
            request->tag = (unsigned)(tag - queue->tags);
            break;
        }
        request->tag = TAGS;
    }
    spin_unlock(&queue->lock);
    idle_kick(interrupted(device));
}

/* Whether a device of this processor has something to complete. */
bool block_pending(unsigned me)
{
    for (unsigned device = 0; device < devices; device++)
        if (interrupted(device) == me && __atomic_load_n(&queues[device].device_busy, __ATOMIC_SEQ_CST) != 0)
            return true;
    return false;
}

/* Completes what the devices of this processor have; whether it did something. */
NOINLINE bool block_interrupt(unsigned me)
{
    bool worked = false;
    for (unsigned device = 0; device < devices; device++) {
        struct device_queue *queue = &queues[device];
        if (interrupted(device) != me)
            continue;
        while (__atomic_load_n(&queue->device_busy, __ATOMIC_SEQ_CST) != 0) {
            struct request *request = NULL;
            spin_lock(&queue->lock);
            if (!list_empty(&queue->waiting)) {
                request = container(queue->waiting.next, struct request, queued);
                list_del(&request->queued);
                __atomic_store_n(&queue->device_busy, queue->device_busy - 1, __ATOMIC_SEQ_CST);
                queue->sectors++;
            }
            spin_unlock(&queue->lock);
            if (request == NULL)
                break;
            worked = true;
            if (request->tag < TAGS) {
                struct tag *tag = &queue->tags[request->tag];
                tag->latency++;
                __atomic_store_n(&tag->busy, 0, __ATOMIC_RELEASE);
            }
            __atomic_fetch_sub(&host->host_busy, 1, __ATOMIC_RELAXED);
            del_timer(&request->timer);
            aio_complete(request, me);
            request_free(request, me);
        }
    }
    return worked;
}
