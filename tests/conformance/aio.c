/* An asynchronous direct writer that is led by the hand: what a test needs to hold a write between its
 * submission and its completion, which no program of the base system can do.
 *
 *   aio FILE          then, line by line on its standard input, each answered by a line:
 *   submit AT LENGTH BYTE COUNT   COUNT writes of LENGTH bytes BYTE, one behind the other from AT
 *   wait                          until all of them are complete
 *
 * Offsets and lengths are multiples of 4096. The system calls are made by number: no library is needed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EVENTS_MAX = 4096 };

static aio_context_t context;
static int file;
static long pending;

static void answer(const char *what, const char *why)
{
	printf(why ? "%s: %s\n" : "%s\n", what, why);
	fflush(stdout);
}

static void submit(long at, long length, int byte, long count)
{
	for (long done = 0; done < count; done++, at += length) {
		struct iocb one = { .aio_fildes = (uint32_t)file, .aio_lio_opcode = IOCB_CMD_PWRITE };
		struct iocb *all[] = { &one };
		void *bytes;
		if (posix_memalign(&bytes, 4096, (size_t)length))
			return answer("failed", "no memory");
		/* It stays until the process ends: the kernel reads it meanwhile. */
		memset(bytes, byte, (size_t)length);
		one.aio_buf = (uintptr_t)bytes;
		one.aio_nbytes = (uint64_t)length;
		one.aio_offset = at;
		if (syscall(SYS_io_submit, context, 1L, all) != 1)
			return answer("failed", strerror(errno));
		pending++;
	}
	answer("submitted", NULL);
}

static void await(void)
{
	static struct io_event events[EVENTS_MAX];
	while (pending > 0) {
		long got = syscall(SYS_io_getevents, context, 1L, (long)EVENTS_MAX, events, NULL);
		if (got < 0)
			return answer("failed", strerror(errno));
		for (long one = 0; one < got; one++)
			if (events[one].res < 0)
				return answer("failed", strerror((int)-events[one].res));
		pending -= got;
	}
	answer("complete", NULL);
}

int main(int count, char **words)
{
	char line[256];
	if (count != 2 || (file = open(words[1], O_RDWR | O_DIRECT)) < 0) {
		perror(count == 2 ? words[1] : "aio FILE");
		return 1;
	}
	if (syscall(SYS_io_setup, (long)EVENTS_MAX, &context)) {
		perror("io_setup");
		return 1;
	}
	while (fgets(line, sizeof line, stdin)) {
		long at, length, many;
		int byte;
		if (sscanf(line, "submit %ld %ld %d %ld", &at, &length, &byte, &many) == 4)
			submit(at, length, byte, many);
		else if (!strcmp(line, "wait\n"))
			await();
		else
			answer("failed", "not understood");
	}
	return 0;
}
