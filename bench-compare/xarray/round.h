/* SPDX-License-Identifier: GPL-2.0-only */
/* What main.c asks of variant.c, which is compiled once for each lock. */
#ifndef ROUND_H
#define ROUND_H

#include <stddef.h>

enum pattern { SEQUENTIAL, INTERLEAVED, RANDOM, PATTERNS };
enum phase { INSERT, LOOKUP, TAG, GANG, UNTAG, REMOVE, PHASES };

struct request {
	enum pattern pattern;
	unsigned int threads;
	unsigned long items;
};

/* Seconds: from the first thread's begin to the last one's end, and of all threads' processors. */
struct span {
	double wall, cpu;
};

/* All phases on a fresh array; NULL, or what went wrong. */
const char *round_spin(const struct request *request, struct span spans[PHASES]);
const char *round_mutex(const struct request *request, struct span spans[PHASES]);

/* 2 MiB of huge page, all zero or as slabs_give_back() found it; NULL when there is no memory. */
#define SLAB_BYTES ((size_t)2 << 20)
void *slab_take(int *fresh);
/* All slabs may be taken again. */
void slabs_give_back(void);

#endif
