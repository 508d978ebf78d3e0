/*
 * One 48-byte element a thread, in an array: three quarters of a line, so that an element shares lines
 * with its neighbours, and half of them straddle two. -DAPART aligns it to a line, as the paper advises
 * for `rq` and `blk_queue_tag`.
 */
#include "known.h"

struct Tag {
    u64 busy;
    u64 done;
    u64 bytes[4];
}
#ifdef APART
ALIGNED
#endif
;

static struct Tag *tags;

static NOINLINE void complete(struct Tag *tag, u64 turn)
{
    tag->busy++;
    tag->bytes[turn % 4] += turn;
    tag->done++;
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        complete(&tags[me], turn);
        private_work(me, 20);
    }
}

int main(int count, char **words)
{
    u64 sum = 0;
    arguments(count, words, 300);
    tags = aligned_alloc(LINE, sizeof(struct Tag) * threads_wanted);
    memset(tags, 0, sizeof(struct Tag) * threads_wanted);
    run_threads(body);
    for (unsigned me = 0; me < threads_wanted; me++)
        sum += tags[me].done;
    return result("done", sum, operations * threads_wanted);
}
