/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One XArray, the threads that work on it, and the memory of its nodes. The kernel's xarray.c is part
 * of this file, so that the compiler sees through it as it does in the kernel where callers use the
 * xas_ interface; -DXA_LOCK_MUTEX chooses the lock, -DROUND names the function.
 *
 * Calls are those that the page cache's own boil down to: xa_insert, xa_load, xa_set_mark,
 * xas_for_each_marked, xa_clear_mark, xa_erase. Entries are aligned pointers that nothing follows.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <sched.h>
#include <time.h>

struct kmem_cache *radix_tree_node_cachep;
void radix_tree_node_rcu_free(struct rcu_head *head);

#include "xarray.c"

#include "round.h"

/*
 * Nodes. A free node is clean but for `parent`, which chains it: the array sets that on every
 * node it gets. When a round is over all nodes are free, and the slabs begin anew.
 */
static __thread struct {
	struct xa_node *free;
	char *next, *end;
	bool fresh;
	struct rcu_head *deferred;
	long taken;
} memory;

void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t gfp)
{
	struct xa_node *node = memory.free;

	(void)cache, (void)lru, (void)gfp;
	memory.taken++;
	if (likely(node)) {
		memory.free = node->parent;
		return node;
	}
	if (unlikely(memory.next == memory.end)) {
		int fresh;

		memory.next = slab_take(&fresh);
		if (!memory.next) {
			memory.end = NULL;
			memory.taken--;
			return NULL;
		}
		memory.end = memory.next + SLAB_BYTES / sizeof(*node) * sizeof(*node);
		memory.fresh = fresh;
	}
	node = (struct xa_node *)memory.next;
	memory.next += sizeof(*node);
	if (memory.fresh)
		/* What the kernel's constructor does, less the zeroes that are there. */
		INIT_LIST_HEAD(&node->private_list);
	return node;
}

void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	struct xa_node *node = object;

	(void)cache;
	memory.taken--;
	node->parent = memory.free;
	memory.free = node;
}

/* As lib/radix-tree.c: only clean nodes go back. */
void radix_tree_node_rcu_free(struct rcu_head *head)
{
	struct xa_node *node = container_of(head, struct xa_node, rcu_head);

	memset(node->slots, 0, sizeof(node->slots));
	memset(node->marks, 0, sizeof(node->marks));
	INIT_LIST_HEAD(&node->private_list);
	kmem_cache_free(radix_tree_node_cachep, node);
}

void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	head->func = func;
	head->next = memory.deferred;
	memory.deferred = head;
}

/* Only when no thread can be reading what this one took away. */
static void run_deferred(void)
{
	struct rcu_head *head = memory.deferred;

	memory.deferred = NULL;
	while (head) {
		struct rcu_head *next = head->next;

		head->func(head);
		head = next;
	}
}

struct round {
	struct xarray array;
	struct request request;
	pthread_barrier_t barrier;
};

struct member {
	struct round *round;
	unsigned int number;
	pthread_t thread;
	struct timespec begin[PHASES], end[PHASES];
	double cpu[PHASES];
	/* Calls that did not answer as they should. */
	unsigned long wrong[PHASES];
	/* Of the entries that the gang lookup met. */
	unsigned long met, sum;
	/* Nodes taken from the cache, less those given back. */
	long taken;
};

/* A thread's keys: `left` of them, `step` apart, modulo `items`. The bench's keys.rs has the same. */
struct keys {
	unsigned long at, step, items, left;
};

static struct keys keys_of(const struct member *member)
{
	/* A prime near 2^32 / 1.618: its multiples visit every key once, far apart. */
	const unsigned long prime = 2654435761;
	unsigned long number = member->number, threads = member->round->request.threads;
	unsigned long items = member->round->request.items;
	unsigned long first = items * number / threads, end = items * (number + 1) / threads;

	switch (member->round->request.pattern) {
	case INTERLEAVED:
		return (struct keys){ number, threads, items, (items + threads - 1 - number) / threads };
	case RANDOM:
		return (struct keys){ first * prime % items, prime % items, items, end - first };
	default:
		return (struct keys){ first, 1, items, end - first };
	}
}

static inline bool keys_next(struct keys *keys, unsigned long *key)
{
	if (!keys->left)
		return false;
	keys->left--;
	*key = keys->at;
	keys->at += keys->step;
	if (keys->at >= keys->items)
		keys->at -= keys->items;
	return true;
}

static inline void *entry_of(unsigned long key)
{
	return (void *)((key + 1) << 3);
}

static double seconds(struct timespec begin, struct timespec end)
{
	return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static void gang(struct member *member)
{
	const struct request *request = &member->round->request;
	unsigned long first = request->items * member->number / request->threads;
	unsigned long end = request->items * (member->number + 1) / request->threads;
	XA_STATE(xas, &member->round->array, first);
	unsigned long met = 0, sum = 0;
	void *entry;

	if (first == end)
		return;
	rcu_read_lock();
	xas_for_each_marked(&xas, entry, end - 1, XA_MARK_0) {
		if (xas_retry(&xas, entry))
			continue;
		met++;
		sum += (unsigned long)entry;
	}
	rcu_read_unlock();
	member->met = met;
	member->sum = sum;
}

static noinline unsigned long work(struct member *member, enum phase phase)
{
	struct xarray *array = &member->round->array;
	struct keys keys = keys_of(member);
	unsigned long key, wrong = 0;

	switch (phase) {
	case INSERT:
		while (keys_next(&keys, &key))
			wrong += xa_insert(array, key, entry_of(key), GFP_KERNEL) != 0;
		break;
	case LOOKUP:
		while (keys_next(&keys, &key))
			wrong += xa_load(array, key) != entry_of(key);
		break;
	case TAG:
		while (keys_next(&keys, &key))
			xa_set_mark(array, key, XA_MARK_0);
		break;
	case GANG:
		gang(member);
		break;
	case UNTAG:
		while (keys_next(&keys, &key))
			xa_clear_mark(array, key, XA_MARK_0);
		break;
	default:
		while (keys_next(&keys, &key))
			wrong += xa_erase(array, key) != entry_of(key);
		/* The kernel's callbacks run soon after, on the same processor. */
		run_deferred();
	}
	return wrong;
}

/* On the processor of its number, among those that it may use; unpinned figures are only noisier. */
static void pin(unsigned int number)
{
	cpu_set_t allowed, one;
	int count, nth;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) || !(count = CPU_COUNT(&allowed)))
		return;
	nth = (int)(number % (unsigned int)count);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || nth--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static void *run(void *argument)
{
	struct member *member = argument;

	pin(member->number);
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct timespec before, after;

		pthread_barrier_wait(&member->round->barrier);
		clock_gettime(CLOCK_MONOTONIC, &member->begin[phase]);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
		member->wrong[phase] = work(member, phase);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
		clock_gettime(CLOCK_MONOTONIC, &member->end[phase]);
		member->cpu[phase] = seconds(before, after);
		if (phase != UNTAG)
			continue;
		pthread_barrier_wait(&member->round->barrier);
		member->wrong[phase] += xa_marked(&member->round->array, XA_MARK_0);
	}
	pthread_barrier_wait(&member->round->barrier);
	run_deferred();
	member->taken = memory.taken;
	return NULL;
}

static const char *verdict(const struct round *round, const struct member *members)
{
	static const char *const why[PHASES] = {
		"an insert failed", "a lookup found another entry", "", "",
		"a mark is left", "an erase found another entry",
	};
	unsigned long items = round->request.items, met = 0, sum = 0;
	long taken = 0;

	for (unsigned int nth = 0; nth < round->request.threads; nth++) {
		for (enum phase phase = 0; phase < PHASES; phase++)
			if (members[nth].wrong[phase])
				return why[phase];
		met += members[nth].met;
		sum += members[nth].sum;
		taken += members[nth].taken;
	}
	/* The entries of all keys: 8 times 1 to `items`. */
	if (met != items || sum != 4 * items * (items + 1))
		return "the gang lookup did not meet every entry once";
	if (!xa_empty(&round->array) || taken)
		return "the array is not empty";
	return NULL;
}

const char *ROUND(const struct request *request, struct span spans[PHASES])
{
	struct round round = { .request = *request };
	struct member *members = calloc(request->threads, sizeof(*members));
	const char *why;

	if (!members)
		return "no memory";
	xa_init(&round.array);
	pthread_barrier_init(&round.barrier, NULL, request->threads);
	for (unsigned int nth = 0; nth < request->threads; nth++) {
		members[nth].round = &round;
		members[nth].number = nth;
		if (pthread_create(&members[nth].thread, NULL, run, &members[nth])) {
			/* The others wait for this one: there is no way back. */
			fprintf(stderr, "xarray-bench: no thread\n");
			exit(1);
		}
	}
	for (unsigned int nth = 0; nth < request->threads; nth++)
		pthread_join(members[nth].thread, NULL);
	pthread_barrier_destroy(&round.barrier);
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct timespec begin = members[0].begin[phase], end = members[0].end[phase];

		spans[phase].cpu = 0;
		for (unsigned int nth = 0; nth < request->threads; nth++) {
			if (seconds(members[nth].begin[phase], begin) > 0)
				begin = members[nth].begin[phase];
			if (seconds(end, members[nth].end[phase]) > 0)
				end = members[nth].end[phase];
			spans[phase].cpu += members[nth].cpu[phase];
		}
		spans[phase].wall = seconds(begin, end);
	}
	why = verdict(&round, members);
	free(members);
	/* What went wrong may have left nodes in use: their slabs are better forgotten. */
	if (!why)
		slabs_give_back();
	return why;
}
