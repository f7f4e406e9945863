/* All that a process has started, directly or not, ended with certainty. */
#ifndef RPI_CLI_DESCENDANTS_H
#define RPI_CLI_DESCENDANTS_H

/* From now on a descendant whose parent ends becomes this process's child (a subreaper's), also
 * one with a session or process group of its own. Whoever calls this reaps children of all
 * kinds. */
void rpi_descendants_adopt(void);
/* End and reap all descendants, within five seconds: what the kernel cannot end (a process in
 * an uninterruptible wait) or this user may not (one with another user's rights) is left. A
 * pass ends the children and thereby adopts theirs, and only a child's id is known not to be
 * another process's by now. Reads /proc; without it nothing is ended. */
void rpi_descendants_kill(void);

#endif
