/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * xarray-bench: Linux's XArray in user space, told by lines what to do.
 *
 *   xarray-bench 1 xarray xarray-mutex            (at the start)
 *   round xarray random 2 1048576                 round insert=WALL:CPU lookup=... tag= gang= untag= remove=
 *                                                 failed WHY
 * A pattern is sequential, interleaved or random; figures are seconds. `end`, or the end of input, ends it.
 */
#define _GNU_SOURCE
#include "round.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLABS_MAX 65536
#define THREADS_MAX 1024
#define ITEMS_MAX (1UL << 31)

static pthread_mutex_t slabs_lock = PTHREAD_MUTEX_INITIALIZER;
static void *slabs[SLABS_MAX];
static size_t slabs_there, slabs_taken;

void *slab_take(int *fresh)
{
	char *slab = NULL;

	pthread_mutex_lock(&slabs_lock);
	*fresh = slabs_taken == slabs_there;
	if (!*fresh) {
		slab = slabs[slabs_taken++];
	} else if (slabs_there < SLABS_MAX) {
		/* Twice as much address space, of which the aligned half is used. */
		slab = mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (slab == MAP_FAILED) {
			slab = NULL;
		} else {
			slab = (char *)(((uintptr_t)slab + SLAB_BYTES - 1) & ~(SLAB_BYTES - 1));
			/* Without huge pages it is only slower. */
			(void)madvise(slab, SLAB_BYTES, MADV_HUGEPAGE);
			slabs[slabs_there++] = slab;
			slabs_taken++;
		}
	}
	pthread_mutex_unlock(&slabs_lock);
	return slab;
}

void slabs_give_back(void)
{
	slabs_taken = 0;
}

static const char *serve(char *line)
{
	static const char *const patterns[PATTERNS] = { "sequential", "interleaved", "random" };
	static const char *const phases[PHASES] = { "insert", "lookup", "tag", "gang", "untag", "remove" };
	char system[16], pattern[16], rest;
	struct request request = { .pattern = PATTERNS };
	struct span spans[PHASES];
	const char *why;

	if (sscanf(line, "round %15s %15s %u %lu %c", system, pattern, &request.threads, &request.items,
		   &rest) != 4)
		return "no such request";
	for (int nth = 0; nth < PATTERNS; nth++)
		if (strcmp(pattern, patterns[nth]) == 0)
			request.pattern = nth;
	if (request.pattern == PATTERNS)
		return "no such pattern";
	if (!request.threads || request.threads > THREADS_MAX || !request.items ||
	    request.items > ITEMS_MAX)
		return "threads are 1 to 1024, items 1 to 2^31";
	if (strcmp(system, "xarray") == 0)
		why = round_spin(&request, spans);
	else if (strcmp(system, "xarray-mutex") == 0)
		why = round_mutex(&request, spans);
	else
		return "no such system; there are: xarray, xarray-mutex";
	if (why)
		return why;
	printf("round");
	for (int phase = 0; phase < PHASES; phase++)
		printf(" %s=%.9f:%.9f", phases[phase], spans[phase].wall, spans[phase].cpu);
	printf("\n");
	return NULL;
}

int main(void)
{
	char line[256];

	printf("xarray-bench 1 xarray xarray-mutex\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		const char *why;

		if (strcmp(line, "end\n") == 0)
			break;
		why = serve(line);
		if (why)
			printf("failed %s\n", why);
		fflush(stdout);
	}
	return 0;
}
