/* Ten programs of one thread that no parameter was chosen by, one of each kind of work: `held_out KIND ROUNDS` prints the
 * nanoseconds of a turn, of the quickest round. As `single.c`, whose programs the model was tuned on; a program here
 * stays as it is when the model misses it. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP(x) __asm__ volatile("" : : "r,m"(x) : "memory")

static uint64_t random_state = 0x853c49e6748fea9bu;

static uint64_t draw(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 24;
}

static uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* Integer chains: the quarter round of ChaCha, over and over. */
static uint64_t quarter_round(long turns) {
    uint32_t a = 0x11111111, b = 0x01020304, c = 0x9b8d6f43, d = 0x01234567;
    for (long i = 0; i < turns; i++) {
        a += b; d = rotate(d ^ a, 16);
        c += d; b = rotate(b ^ c, 12);
        a += b; d = rotate(d ^ a, 8);
        c += d; b = rotate(b ^ c, 7);
    }
    return a ^ b ^ c ^ d;
}

/* Floating point: three bodies that attract each other. */
static double body[3][6] = {{1, 0, 0, 0, .5, 0}, {-1, 0, .1, 0, -.5, 0}, {0, 1, -.1, .5, 0, .1}};
static uint64_t bodies(long turns) {
    for (long turn = 0; turn < turns; turn++) {
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                if (i == j) continue;
                double x = body[j][0] - body[i][0], y = body[j][1] - body[i][1], z = body[j][2] - body[i][2];
                double square = x * x + y * y + z * z + 0.01;
                double pull = 0.0001 / (square * sqrt(square));
                body[i][3] += x * pull;
                body[i][4] += y * pull;
                body[i][5] += z * pull;
            }
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 3; k++) body[i][k] += body[i][k + 3] * 0.0001;
    }
    return (uint64_t)(body[0][0] * 1000);
}

/* Division: greatest common divisors, 32 bits. */
static uint64_t divisors(long turns) {
    uint64_t sum = 0;
    for (long i = 0; i < turns; i++) {
        uint32_t a = (uint32_t)draw() | 1, b = (uint32_t)draw() | 1;
        while (b) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        sum += a;
    }
    return sum;
}

/* Vectors: 4096 floats. */
static float left[4096], right[4096], both[4096];
static uint64_t scaled_sum(long turns) {
    for (long turn = 0; turn < turns; turn++) {
        for (int i = 0; i < 4096; i++) both[i] = left[i] * 1.5f + right[i];
        KEEP(both);
    }
    return (uint64_t)both[17];
}

/* Branches that cannot be guessed: bytes sorted into classes. */
static unsigned char bytes[1 << 15];
static uint64_t classes[4], sums[4];
static uint64_t classify(long turns) {
    uint64_t at = draw();
    for (long i = 0; i < turns; i++) {
        unsigned char byte = bytes[(at + i) & (sizeof bytes - 1)];
        if (byte < 50) { classes[0]++; sums[0] += byte; }
        else if (byte < 130) { classes[1] += 2; sums[1] ^= byte; }
        else if (byte & 1) { classes[2]++; sums[2] -= byte; }
        else { classes[3] += 3; sums[3] += byte * 3; }
    }
    return classes[0] + sums[1];
}

/* Chasing pointers: look-ups in a tree of 4096 keys that is not balanced. */
struct leaf { struct leaf *child[2]; uint64_t key, value; };
static struct leaf leaves[4096], *root;
static void plant(void) {
    for (int i = 0; i < 4096; i++) {
        struct leaf *new = &leaves[(i * 2654435761u) & 4095], **at = &root;
        new->key = draw();
        new->value = i;
        while (*at) at = &(*at)->child[new->key > (*at)->key];
        *at = new;
    }
}
static uint64_t tree(long turns) {
    uint64_t sum = 0;
    for (long i = 0; i < turns; i++) {
        uint64_t key = leaves[draw() & 4095].key;
        struct leaf *at = root;
        while (at && at->key != key) at = at->child[key > at->key];
        sum += at ? at->value : 0;
    }
    return sum;
}

/* Hashing: a table of open addressing, half full. */
static uint64_t table[8192];
static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}
static uint64_t hashing(long turns) {
    uint64_t hits = 0, key = draw();
    for (long i = 0; i < turns; i++) {
        uint64_t wanted = (key + i * 7) % 8192 + 1, at = mix(wanted) & 8191;
        while (table[at] && table[at] != wanted) at = (at + 1) & 8191;
        if (table[at]) hits++;
    }
    return hits;
}

/* Sorting: 1000 numbers, by a heap. */
static uint32_t heap[1000];
static void sift(uint32_t *numbers, int at, int count) {
    uint32_t moved = numbers[at];
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && numbers[child + 1] > numbers[child]) child++;
        if (numbers[child] <= moved) break;
        numbers[at] = numbers[child];
    }
    numbers[at] = moved;
}
static uint64_t heap_sort(long turns) {
    for (long turn = 0; turn < turns; turn++) {
        for (int i = 0; i < 1000; i++) heap[i] = (uint32_t)draw();
        for (int i = 499; i >= 0; i--) sift(heap, i, 1000);
        for (int end = 999; end > 0; end--) {
            uint32_t most = heap[0];
            heap[0] = heap[end];
            heap[end] = most;
            sift(heap, 0, end);
        }
    }
    return heap[500];
}

/* Copying: blocks of 100 to 3000 bytes. */
static char source[8192], target[8192];
static uint64_t copying(long turns) {
    for (long i = 0; i < turns; i++) {
        memcpy(target + (i & 63), source + (i * 37 & 1023), 100 + (size_t)(i * 811 % 2900));
        KEEP(target);
    }
    return (uint64_t)target[99];
}

/* Mixed: an interpreter of a small program, by a switch. */
enum { ADD, LOAD, STORE, LESS, JUMP_IF, MULTIPLY, SHIFT, END };
static const unsigned char program[][3] = {
    {LOAD, 1, 0}, {ADD, 2, 1}, {MULTIPLY, 3, 2}, {SHIFT, 3, 1}, {STORE, 3, 0}, {ADD, 0, 4}, {LESS, 5, 0}, {JUMP_IF, 5, 0}, {END, 0, 0},
};
static uint64_t cells[256];
static uint64_t interpreter(long turns) {
    uint64_t total = 0;
    for (long turn = 0; turn < turns; turn++) {
        uint64_t registers[8] = {0, 0, 1, 3, 1, 0, 200, 0};
        for (int at = 0;; at++) {
            const unsigned char *code = program[at];
            uint64_t *one = &registers[code[1]];
            if (code[0] == END) break;
            switch (code[0]) {
            case ADD: *one += registers[code[2]]; break;
            case LOAD: *one = cells[registers[code[2]] & 255]; break;
            case STORE: cells[registers[code[2]] & 255] = *one; break;
            case LESS: *one = registers[code[2]] < registers[6]; break;
            case JUMP_IF: if (*one) at = code[2] - 1; break;
            case MULTIPLY: *one *= registers[code[2]] | 1; break;
            case SHIFT: *one ^= *one >> 9; break;
            }
        }
        total += registers[3];
    }
    return total;
}

struct kind {
    const char *name, *what;
    uint64_t (*run)(long);
    long turns;
};
static const struct kind kinds[] = {
    {"quarter-round", "integer chains", quarter_round, 100000},
    {"bodies", "floating point and roots", bodies, 5000},
    {"divisors", "integer divisions", divisors, 5000},
    {"scaled-sum", "4096 floats, in vectors", scaled_sum, 50},
    {"classify", "branches that cannot be guessed", classify, 100000},
    {"tree", "look-ups in a tree", tree, 10000},
    {"hashing", "look-ups in a table", hashing, 30000},
    {"heap-sort", "sorting 1000 numbers by a heap", heap_sort, 10},
    {"copying", "copies of 100 to 3000 bytes", copying, 2000},
    {"interpreter", "an interpreter, mixed", interpreter, 50},
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words) {
    size_t all = sizeof kinds / sizeof *kinds;
    if (count < 2 || !strcmp(words[1], "list")) {
        for (size_t i = 0; i < all; i++) printf("%s\t%s\n", kinds[i].name, kinds[i].what);
        return 0;
    }
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)draw();
    for (int i = 0; i < 4096; i++) {
        left[i] = (float)i;
        right[i] = (float)(i & 15);
        uint64_t key = draw() % 8192 + 1, at = mix(key) & 8191;
        while (table[at] && table[at] != key) at = (at + 1) & 8191;
        table[at] = key;
    }
    plant();
    for (size_t i = 0; i < all; i++) {
        const struct kind *kind = &kinds[i];
        if (strcmp(words[1], kind->name)) continue;
        long rounds = count > 2 ? atol(words[2]) : 1;
        KEEP(kind->run(kind->turns));
        uint64_t best = UINT64_MAX;
        for (long round = 0; round < rounds; round++) {
            uint64_t begin = now();
            KEEP(kind->run(kind->turns));
            uint64_t took = now() - begin;
            if (took < best) best = took;
        }
        printf("%s %.3f\n", kind->name, (double)best / kind->turns);
        return 0;
    }
    fprintf(stderr, "held_out: no such kind: %s\n", words[1]);
    return 2;
}
