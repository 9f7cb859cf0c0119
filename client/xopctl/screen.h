/*
 * A terminal that is drawn upon again and again: the other screen of xterm and its kin, without a
 * cursor, keys read as they are pressed. Whatever ends the program by a signal, the terminal is
 * left as it was found; where it is stopped (^Z), meanwhile too. One thread; one screen in a
 * process.
 */
#ifndef XOPCTL_SCREEN_H
#define XOPCTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#define SCREEN_LEFT 0x101
#define SCREEN_RIGHT 0x102
#define SCREEN_LATER (-1)  /* the time has passed */
#define SCREEN_REDRAW (-2) /* the terminal has another size, or shows nothing of ours */

/* Takes the terminal at standard output; keys come from standard input, where that is one too. */
void screen_enter(void);
/* Gives it back; does nothing where it is not taken. */
void screen_leave(void);
/* 80 by 24 where the terminal does not know. */
void screen_size(size_t *width, size_t *height);
/* Puts a picture in place of the last one: lines that end with SCREEN_END_OF_LINE and a newline. */
#define SCREEN_END_OF_LINE "\033[K"
void screen_show(const char *picture, size_t bytes);
/* Waits for a key until CLOCK_MONOTONIC says so many nanoseconds: a character or one of the above.
 */
int screen_key(unsigned long long until_ns);

#endif
