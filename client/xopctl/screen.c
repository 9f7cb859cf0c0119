#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDS (sizeof ends / sizeof *ends)

static struct {
    bool taken, keys;
    struct termios found, own;
    volatile sig_atomic_t redraw;
    char typed[32]; /* and not yet answered */
    size_t ntyped;
} screen;

/* ---- What signal handlers may call ---- */

static void put(const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the terminal is gone, and SIGHUP under way */
        text += n;
        bytes -= (size_t)n;
    }
}

static void take(void) {
    if (screen.keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen.own);
    put(ENTER, sizeof ENTER - 1);
}

static void give_back(void) {
    put(LEAVE, sizeof LEAVE - 1);
    if (screen.keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen.found);
}

static void on_end(int number) {
    give_back();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void on_stop(int number) {
    int error = errno;
    (void)number;
    give_back();
    (void)raise(SIGSTOP);
    take();
    screen.redraw = 1;
    errno = error;
}

static void on_resize(int number) {
    (void)number;
    screen.redraw = 1;
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    /* While one of them gives the terminal back, no other may. */
    for (size_t i = 0; i < ENDS; i++)
        sigaddset(&action.sa_mask, ends[i]);
    sigaddset(&action.sa_mask, SIGTSTP);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)sigaction(number, &action, NULL);
}

/* ---- What programs call ---- */

void screen_enter(void) {
    sigset_t held;
    screen.keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.found) == 0;
    screen.own = screen.found;
    screen.own.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    screen.own.c_cc[VMIN] = 1;
    screen.own.c_cc[VTIME] = 0;
    /* Comes only within screen_key, which has looked at the flag before. */
    sigemptyset(&held);
    sigaddset(&held, SIGWINCH);
    (void)sigprocmask(SIG_BLOCK, &held, NULL);
    handle(SIGWINCH, on_resize);
    handle(SIGTSTP, on_stop);
    for (size_t i = 0; i < ENDS; i++)
        handle(ends[i], on_end);
    screen.taken = true;
    take();
}

void screen_leave(void) {
    if (!screen.taken)
        return;
    for (size_t i = 0; i < ENDS; i++)
        handle(ends[i], SIG_DFL);
    handle(SIGTSTP, SIG_DFL);
    screen.taken = false;
    give_back();
}

void screen_size(size_t *width, size_t *height) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    *width = known ? size.ws_col : 80;
    *height = known ? size.ws_row : 24;
}

void screen_show(const char *picture, size_t bytes) {
    put("\033[H", 3);
    put(picture, bytes);
    put("\033[J", 3);
}

/* The first key of what was typed; an escape sequence that is not known counts as key 0. */
static int next_key(void) {
    const char *typed = screen.typed;
    bool sequence =
        screen.ntyped >= 3 && typed[0] == '\033' && (typed[1] == '[' || typed[1] == 'O');
    size_t used = sequence ? 3 : 1;
    int key = (unsigned char)typed[0];
    if (sequence)
        key = typed[2] == 'D' ? SCREEN_LEFT : typed[2] == 'C' ? SCREEN_RIGHT : 0;
    screen.ntyped -= used;
    memmove(screen.typed, screen.typed + used, screen.ntyped);
    return key;
}

int screen_key(unsigned long long until_ns) {
    for (;;) {
        struct pollfd input = {screen.keys ? STDIN_FILENO : -1, POLLIN, 0};
        struct timespec now, left;
        sigset_t mask;
        if (screen.redraw) {
            screen.redraw = 0;
            return SCREEN_REDRAW;
        }
        if (screen.ntyped > 0)
            return next_key();
        clock_gettime(CLOCK_MONOTONIC, &now);
        unsigned long long ns =
            (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
        if (ns >= until_ns)
            return SCREEN_LATER;
        left.tv_sec = (time_t)((until_ns - ns) / 1000000000u);
        left.tv_nsec = (long)((until_ns - ns) % 1000000000u);
        (void)sigprocmask(SIG_SETMASK, NULL, &mask);
        sigdelset(&mask, SIGWINCH);
        if (ppoll(&input, 1, &left, &mask) <= 0)
            continue;
        ssize_t n = read(STDIN_FILENO, screen.typed, sizeof screen.typed);
        if (n > 0)
            screen.ntyped = (size_t)n;
        else if (n == 0 || errno != EINTR)
            screen.keys = false; /* there will be none */
    }
}
