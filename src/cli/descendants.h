/* Ends everything that a process has started, directly or not. */
#ifndef RPI_CLI_DESCENDANTS_H
#define RPI_CLI_DESCENDANTS_H

/* From now on a descendant whose parent ends becomes this process's child (as a subreaper's),
 * even if it has a session or process group of its own. The caller must reap children of all
 * kinds. */
void rpi_descendants_adopt(void);
/* Ends and reaps all descendants within five seconds, except those that the kernel cannot end
 * (in an uninterruptible wait) and those that this user may not end (of another user). It ends
 * the children, adopts their children in turn, and repeats: only the id of a child certainly
 * does not belong to another process by now. Reads /proc; without it nothing is ended. */
void rpi_descendants_kill(void);

#endif
