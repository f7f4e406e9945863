/* All that a process has started, directly or not, ended with certainty. */
#ifndef RPI_CLI_DESCENDANTS_H
#define RPI_CLI_DESCENDANTS_H

/* From now on a descendant whose parent ends becomes this process's child (a subreaper's), also
 * one with a session or process group of its own. Whoever calls this reaps children of all
 * kinds. */
void rpi_descendants_adopt(void);
/* Ends and reaps all descendants within five seconds. Left are those that the kernel cannot end
 * (in an uninterruptible wait) and those that this user may not end (of another user). A pass
 * ends the children, and thereby adopts their children in turn: only the id of a child is
 * certain not to belong to another process by now. Reads /proc; without it nothing is ended. */
void rpi_descendants_kill(void);

#endif
