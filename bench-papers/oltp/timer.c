/* Timers: added on the processor that submits, deleted on the one that completes. */
#include "oltp.h"

struct timer_base {
    spinlock_t lock;
    struct timer *running_timer;
    uint64_t ticks;
    struct list timers[4];
};

static struct timer_base *timer_bases;

void timer_init(void)
{
    timer_bases = calloc(processors, sizeof(struct timer_base));
    for (unsigned which = 0; which < processors; which++)
        for (unsigned slot = 0; slot < 4; slot++)
            list_init(&timer_bases[which].timers[slot]);
}

NOINLINE void mod_timer(struct timer *timer, unsigned me, uint64_t ticks)
{
    struct timer_base *base = &timer_bases[me];
    spin_lock(&base->lock);
    timer->base = me;
    timer->expires = base->ticks + ticks;
    list_add_tail(&timer->queued, &base->timers[timer->expires % 4]);
    spin_unlock(&base->lock);
}

NOINLINE void del_timer(struct timer *timer)
{
    struct timer_base *base = &timer_bases[timer->base];
    spin_lock(&base->lock);
    if (base->running_timer != timer)
        list_del(&timer->queued);
    spin_unlock(&base->lock);
}

/* Nothing ever expires: every request is completed before. */
NOINLINE void run_timers(unsigned me)
{
    struct timer_base *base = &timer_bases[me];
    spin_lock(&base->lock);
    base->ticks++;
    spin_unlock(&base->lock);
}
