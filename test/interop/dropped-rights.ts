/** The program that drops privileges (programs/dropped-rights.c). */
/** Ways to drop privileges; the first drops none. */
export const HOWS = ['nothing', 'chroot', 'setuid', 'seteuid'] as const;
