/*
 * Requests from a slab: a small cache of free ones for each processor, and shared lists behind it. What
 * is freed on another processor than it was allocated on goes back through the owner's alien cache.
 */
#include "oltp.h"

#define CACHE_LIMIT 12

struct array_cache {
    uint32_t avail;
    uint32_t limit;
    uint32_t touched;
    spinlock_t lock;
    struct request *entry[CACHE_LIMIT];
};

struct slab_lists {
    struct list partial;
    uint64_t free_objects;
    spinlock_t list_lock;
    struct array_cache *alien;
    uint64_t allocated;
};

static struct array_cache *array_caches;
static struct slab_lists lists;

void slab_init(void)
{
    array_caches = calloc(processors, sizeof(struct array_cache));
    lists.alien = calloc(processors, sizeof(struct array_cache));
    list_init(&lists.partial);
    for (unsigned which = 0; which < processors; which++) {
        array_caches[which].limit = CACHE_LIMIT;
        lists.alien[which].limit = CACHE_LIMIT;
    }
}

/* Takes what others freed of ours, then from the shared list, then new memory. */
static NOINLINE void cache_refill(struct array_cache *cache, unsigned me)
{
    struct array_cache *alien = &lists.alien[me];
    spin_lock(&alien->lock);
    while (alien->avail > 0 && cache->avail < cache->limit)
        cache->entry[cache->avail++] = alien->entry[--alien->avail];
    spin_unlock(&alien->lock);
    if (cache->avail > 0)
        return;
    spin_lock(&lists.list_lock);
    while (!list_empty(&lists.partial) && cache->avail < cache->limit / 2) {
        struct request *request = container(lists.partial.next, struct request, queued);
        list_del(&request->queued);
        lists.free_objects--;
        cache->entry[cache->avail++] = request;
    }
    spin_unlock(&lists.list_lock);
    if (cache->avail == 0) {
        cache->entry[cache->avail++] = calloc(1, sizeof(struct request));
        __atomic_fetch_add(&lists.allocated, 1, __ATOMIC_RELAXED);
    }
}

NOINLINE struct request *request_alloc(unsigned me)
{
    struct array_cache *cache = &array_caches[me];
    if (cache->avail == 0)
        cache_refill(cache, me);
    cache->touched = 1;
    struct request *request = cache->entry[--cache->avail];
    request->owner = me;
    return request;
}

static NOINLINE void free_to_list(struct request *request)
{
    spin_lock(&lists.list_lock);
    list_add_tail(&request->queued, &lists.partial);
    lists.free_objects++;
    spin_unlock(&lists.list_lock);
}

NOINLINE void request_free(struct request *request, unsigned me)
{
    struct array_cache *cache = &array_caches[me];
    if (request->owner != me) {
        struct array_cache *alien = &lists.alien[request->owner];
        bool taken = false;
        spin_lock(&alien->lock);
        if (alien->avail < alien->limit) {
            alien->entry[alien->avail++] = request;
            taken = true;
        }
        spin_unlock(&alien->lock);
        if (!taken)
            free_to_list(request);
    } else if (cache->avail < cache->limit) {
        cache->entry[cache->avail++] = request;
    } else {
        free_to_list(request);
    }
}
