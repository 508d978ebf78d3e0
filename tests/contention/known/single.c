/* Twenty programs of one thread, from pure computing to pure chasing of pointers: `single KIND ROUNDS` prints the
 * nanoseconds of a turn, of the quickest round. What each does is printed by `single list`; the last of the list is
 * one more, which the simulation is known to miss. They are for setting simulated time beside
 * that of a processor: the clock is the program's own, so that under simulation it is the simulated one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP(x) __asm__ volatile("" : : "r,m"(x) : "memory")

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#define SMALL 2048
static uint64_t small[SMALL];

/* Computing only. */
static uint64_t multiply_chain(uint64_t x, long turns) {
    for (long i = 0; i < turns; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}
static uint64_t xorshift(uint64_t x, long turns) {
    for (long i = 0; i < turns; i++) next_random(&x);
    return x;
}
static uint64_t four_chains(uint64_t x, long turns) {
    uint64_t a = x, b = x + 1, c = x + 2, d = x + 3;
    for (long i = 0; i < turns; i++) {
        a = a * 3 + 1;
        b = (b ^ (b >> 3)) + i;
        c = c * 5 + i;
        d = (d << 1) ^ (d >> 7);
    }
    return a ^ b ^ c ^ d;
}
static uint64_t divide(uint64_t x, long turns) {
    uint64_t sum = 0;
    for (long i = 0; i < turns; i++) {
        x = x / (i | 3) + 0x123456789abcdefu;
        sum += x;
    }
    return sum;
}
static uint64_t float_chain(uint64_t seed, long turns) {
    double x = (double)seed, y = 0.5;
    for (long i = 0; i < turns; i++) x = x * 0.999 + y;
    return (uint64_t)x;
}
static uint64_t newton(uint64_t seed, long turns) {
    double sum = 0;
    for (long i = 0; i < turns; i++) {
        double a = (double)(seed + i), x = a;
        for (int k = 0; k < 4; k++) x = 0.5 * (x + a / x);
        sum += x;
    }
    return (uint64_t)sum;
}
static uint64_t collatz(uint64_t seed, long turns) {
    uint64_t steps = 0;
    for (long i = 1; i <= turns; i++)
        for (uint64_t n = seed + i; n != 1; steps++) {
            if (n & 1) n = 3 * n + 1;
            else n = n / 2;
        }
    return steps;
}
static uint64_t coin(uint64_t x, long turns) {
    uint64_t heads = 0;
    for (long i = 0; i < turns; i++) {
        next_random(&x);
        if (x & 64) small[0] += heads++;
        else small[1] ^= x;
    }
    return heads;
}
static __attribute__((noinline)) uint64_t fibonacci(uint64_t n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
static uint64_t recursion(uint64_t seed, long turns) {
    uint64_t sum = 0;
    for (long i = 0; i < turns; i++) sum += fibonacci(12 + (seed & 1));
    return sum;
}

/* Computing on memory. */
static double real_a[3][32][32];
static uint64_t sum_small(uint64_t seed, long turns) {
    uint64_t sum = seed;
    for (long i = 0; i < turns; i++)
        for (int k = 0; k < SMALL; k++) sum = (sum ^ small[k]) * 3;
    return sum;
}
static int side = 32;
static uint64_t matrix(uint64_t seed, long turns) {
    int n = side;
    for (int i = 0; i < 32; i++)
        for (int k = 0; k < 32; k++) real_a[0][i][k] = real_a[1][i][k] = (double)(seed + i + k);
    for (long turn = 0; turn < turns; turn++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int k = 0; k < n; k++) sum += real_a[0][i][k] * real_a[1][j][k];
                real_a[2][i][j] = sum;
            }
    return (uint64_t)real_a[2][3][4];
}
/* The compiler makes vectors of this one, but not where a call stands in the loop. */
static uint64_t vectors(uint64_t seed, long turns) {
    for (int i = 0; i < 32; i++)
        for (int k = 0; k < 32; k++) real_a[0][i][k] = real_a[1][i][k] = (double)(seed + i + k);
    for (long turn = 0; turn < turns; turn++)
        for (int i = 0; i < 32; i++)
            for (int j = 0; j < 32; j++) {
                double sum = 0;
                for (int k = 0; k < 32; k++) sum += real_a[0][i][k] * real_a[1][k][j];
                real_a[2][i][j] = sum;
            }
    return (uint64_t)real_a[2][3][4];
}
static uint64_t hash_bytes(uint64_t seed, long turns) {
    const unsigned char *bytes = (const unsigned char *)small;
    uint64_t hash = seed;
    for (long i = 0; i < turns; i++)
        for (int k = 0; k < 1024; k++) hash = (hash ^ bytes[k]) * 0x100000001b3u;
    return hash;
}
static uint64_t histogram(uint64_t seed, long turns) {
    for (long i = 0; i < turns; i++) {
        next_random(&seed);
        small[seed % SMALL] += 1;
    }
    return small[3];
}
static uint64_t insertion_sort(uint64_t seed, long turns) {
    static int64_t values[64];
    for (long i = 0; i < turns; i++) {
        for (int k = 0; k < 64; k++) values[k] = (int64_t)(next_random(&seed) >> 8);
        for (int k = 1; k < 64; k++) {
            int64_t value = values[k];
            int at = k;
            for (; at > 0 && values[at - 1] > value; at--) values[at] = values[at - 1];
            values[at] = value;
        }
    }
    return (uint64_t)values[5];
}
static uint64_t binary_search(uint64_t seed, long turns) {
    uint64_t found = 0;
    for (long i = 0; i < turns; i++) {
        uint64_t wanted = next_random(&seed) % (SMALL * 16);
        int low = 0, high = SMALL;
        while (low < high) {
            int middle = (low + high) / 2;
            if (small[middle] < wanted) low = middle + 1;
            else high = middle;
        }
        found += low;
    }
    return found;
}

/* Memory. */
struct node {
    struct node *next;
    uint64_t value[7];
};
static struct node *ring(size_t count, uint64_t seed) {
    struct node *nodes = aligned_alloc(4096, count * sizeof *nodes);
    size_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = next_random(&seed) % (i + 1), one = order[i];
        order[i] = order[other];
        order[other] = one;
    }
    for (size_t i = 0; i < count; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % count]];
        nodes[order[i]].value[0] = i;
    }
    free(order);
    return nodes;
}
static struct node *nodes;
static uint64_t chase(uint64_t seed, long turns) {
    struct node *at = nodes;
    for (long i = 0; i < turns; i++) at = at->next;
    nodes = at;
    return at->value[0] + seed;
}
static uint64_t chase_and_add(uint64_t seed, long turns) {
    struct node *at = nodes;
    for (long i = 0; i < turns; i++) {
        seed = (seed + at->value[0]) * 5;
        at = at->next;
    }
    return seed;
}
static uint64_t *large;
static size_t large_count;
static uint64_t stream(uint64_t seed, long turns) {
    for (long i = 0; i < turns; i++)
        for (size_t k = 0; k < large_count; k += 8) seed = (seed ^ large[k]) + 7;
    return seed;
}
static uint64_t scattered(uint64_t seed, long turns) {
    uint64_t sum = 0;
    for (long i = 0; i < turns; i++) sum += large[next_random(&seed) & (large_count - 1)];
    return sum;
}

/* What a machine's file has to know of a processor: a chain of additions of one cycle each. */
static uint64_t additions(uint64_t seed, long turns) {
    for (long i = 0; i < turns; i++)
        __asm__ volatile("add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\t"
                         "add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0"
                         : "+r"(seed));
    return seed;
}

struct kind {
    const char *name, *what;
    uint64_t (*run)(uint64_t, long);
    /* Turns of a measurement; bytes that are walked, and whether as a ring. */
    long turns;
    size_t bytes;
    int is_ring;
};
static const struct kind kinds[] = {
    {"multiply-chain", "one chain of multiplications", multiply_chain, 200000, 0, 0},
    {"xorshift", "one chain of shifts", xorshift, 200000, 0, 0},
    {"four-chains", "four chains side by side", four_chains, 200000, 0, 0},
    {"divide", "integer divisions", divide, 100000, 0, 0},
    {"float-chain", "one chain of floating-point numbers", float_chain, 200000, 0, 0},
    {"newton", "floating-point divisions", newton, 20000, 0, 0},
    {"collatz", "short branches", collatz, 2000, 0, 0},
    {"coin", "a branch that cannot be guessed", coin, 100000, 0, 0},
    {"recursion", "calls", recursion, 200, 0, 0},
    {"sum", "an array of 16 KiB, one chain", sum_small, 100, 0, 0},
    {"matrix", "32 x 32 matrices", matrix, 10, 0, 0},
    {"hash", "a hash of bytes", hash_bytes, 200, 0, 0},
    {"histogram", "counters of 16 KiB at random", histogram, 100000, 0, 0},
    {"sort", "sorting 64 numbers by insertion", insertion_sort, 200, 0, 0},
    {"search", "binary search in 16 KiB", binary_search, 10000, 0, 0},
    {"stream", "4 MiB in order", stream, 3, 4 << 20, 0},
    {"scattered", "independent loads of 512 KiB", scattered, 100000, 512 << 10, 0},
    {"chase-16k", "pointers in 16 KiB", chase, 200000, 16 << 10, 1},
    {"chase-256k", "pointers in 256 KiB", chase_and_add, 100000, 256 << 10, 1},
    {"chase-64m", "pointers in 64 MiB", chase, 20000, 64 << 20, 1},
    {"vectors", "32 x 32 matrices, in vectors", vectors, 10, 0, 0},
    /* For the machine's file, and in no list. */
    {"clock", NULL, additions, 200000, 0, 0},
    {"last-level", NULL, chase, 100000, 4 << 20, 1},
    {"memory", NULL, chase, 20000, 128 << 20, 1},
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words) {
    size_t all = sizeof kinds / sizeof *kinds;
    if (count < 2 || !strcmp(words[1], "list")) {
        for (size_t i = 0; i < all && kinds[i].what; i++)
            printf("%s\t%s\n", kinds[i].name, kinds[i].what);
        return 0;
    }
    for (size_t i = 0; i < all; i++) {
        const struct kind *kind = &kinds[i];
        if (strcmp(words[1], kind->name)) continue;
        long rounds = count > 2 ? atol(words[2]) : 1;
        uint64_t seed = 88172645463325252u;
        if (kind->bytes && kind->is_ring) nodes = ring(kind->bytes / sizeof *nodes, seed);
        else if (kind->bytes) {
            large = aligned_alloc(4096, kind->bytes);
            large_count = kind->bytes / sizeof *large;
            for (size_t k = 0; k < large_count; k++) large[k] = k;
        }
        for (int k = 0; k < SMALL; k++) small[k] = 16 * k;
        KEEP(kind->run(seed, kind->turns));
        uint64_t best = UINT64_MAX;
        for (long round = 0; round < rounds; round++) {
            uint64_t begin = now();
            KEEP(kind->run(seed + round, kind->turns));
            uint64_t took = now() - begin;
            if (took < best) best = took;
        }
        printf("%s %.3f\n", kind->name, (double)best / kind->turns);
        return 0;
    }
    fprintf(stderr, "single: no such kind: %s\n", words[1]);
    return 2;
}
