#include "cli/hosts/remote_shell.h"

#include "base/append.h"
#include "base/memory.h"
#include "cli/hosts/find_program.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LOST_S 30.0
enum { KEEPALIVE_MOST_S = 100000000 };
enum { SSH_FAILED = 255, NOT_EXECUTABLE = 126, NOT_FOUND = 127, MISUSED = 2 };

/* In single quotes, so that a shell reads one word. Returns the position after it. */
static char *put_quoted(char *to, const char *text) {
    *to++ = '\'';
    for (; *text; text++) {
        if (*text == '\'') to = stpcpy(to, "'\\'");
        *to++ = *text;
    }
    *to++ = '\'';
    *to = '\0';
    return to;
}

static size_t quoted_bytes(const char *text) {
    return 4 * strlen(text) + 3;
}

/* The command for the other host's shell, which may be any: a plain one then finds the program.
 */
static rp_status remote_command(const rpi_remote_shell *shell, char **out_text) {
    static const char before[] = "r=", behind[] = "; test -x \"$r\" || r=redpoll; exec \"$r\" ",
                      last[] = " --agent";
    size_t bytes = sizeof before + sizeof behind + strlen(shell->agent) + sizeof last;
    char *script = NULL, *text = NULL;
    RP_TRY(rpi_alloc(bytes + quoted_bytes(shell->redpoll), "words", &script));
    char *end = stpcpy(put_quoted(stpcpy(script, before), shell->redpoll), behind);
    stpcpy(stpcpy(end, shell->agent), last);
    rp_status status = rpi_alloc(16 + quoted_bytes(script), "words", &text);
    if (status == RP_OK) put_quoted(stpcpy(text, "exec sh -c "), script);
    rpi_free(script);
    *out_text = text;
    return status;
}

/* ssh asks three times, or every second if three do not fit. */
static void put_keepalive(double lost_s, rpi_remote_words *words) {
    double third = floor(lost_s / 3);
    int interval = third < 1 ? 1 : third > KEEPALIVE_MOST_S ? KEEPALIVE_MOST_S : (int)third;
    int count =
        (int)(lost_s / interval < KEEPALIVE_MOST_S ? lost_s / interval : KEEPALIVE_MOST_S);
    snprintf(words->interval, sizeof words->interval, "ServerAliveInterval=%d", interval);
    snprintf(words->count, sizeof words->count, "ServerAliveCountMax=%d",
             count < 1 ? 1 : count);
}

rp_status rpi_remote_shell_words(const rpi_remote_shell *shell, const char *host,
                                 rpi_remote_words *out_words) {
    static const char *const fixed[] = {"-T", "-o", "BatchMode=yes", "-o"};
    rpi_remote_words words = {.argv = {NULL}};
    size_t bytes = strlen(shell->command) + 64, count = 0;
    RP_TRY(rpi_alloc(bytes, "words", &words.texts[0]));
    rp_status status = remote_command(shell, &words.texts[1]);
    if (status != RP_OK) {
        rpi_free(words.texts[0]);
        return status;
    }
    int length = snprintf(words.texts[0], bytes, "exec %s \"$@\"", shell->command);
    char *timeout = words.texts[0] + length + 1;
    snprintf(timeout, 32, "ConnectTimeout=%d", shell->connect_timeout_s);
    put_keepalive(shell->lost_s > 0 ? shell->lost_s : LOST_S, out_words);
#define WORD(text) words.argv[count++] = (char *)(uintptr_t)(text)
    WORD("sh");
    WORD("-c");
    WORD(words.texts[0]);
    WORD("ssh");
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) WORD(fixed[i]);
    WORD(timeout);
    WORD("-o");
    WORD(out_words->interval);
    WORD("-o");
    WORD(out_words->count);
    WORD(host);
    WORD(words.texts[1]);
#undef WORD
    memcpy(out_words->argv, words.argv, sizeof words.argv);
    memcpy(out_words->texts, words.texts, sizeof words.texts);
    return RP_OK;
}

void rpi_remote_shell_free(rpi_remote_words *words) {
    for (int i = 0; i < 2; i++) rpi_free(words->texts[i]);
    *words = (rpi_remote_words){.argv = {NULL}};
}

bool rpi_is_this_host(const char *name) {
    char own[256] = "";
    if (strcmp(name, "localhost") == 0) return true;
    if (gethostname(own, sizeof own - 1) != 0 || !*own) return false;
    if (strcasecmp(name, own) == 0) return true;
    size_t length = strcspn(own, ".");
    return !name[length] && strncasecmp(name, own, length) == 0;
}

rp_status rpi_remote_shell_check(const char *command, const rpi_host_list *hosts) {
    char first[256];
    size_t length = strspn(command, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789._/-");
    if ((command[length] && command[length] != ' ') || length == 0 || length >= sizeof first)
        return RP_OK; /* a shell will see to it */
    snprintf(first, sizeof first, "%.*s", (int)length, command);
    if (rpi_program_exists(first)) return RP_OK;
    for (int i = 0; i < hosts->count; i++)
        if (!rpi_is_this_host(hosts->hosts[i].name))
            return RP_FAIL(INVALID,
                           "there is no program '%s' here, to reach %s by; install it "
                           "(openssh-client), or --ssh COMMAND names another",
                           first, hosts->hosts[i].name);
    return RP_OK;
}

/* ---- what went wrong ---- */

typedef struct advice {
    const char *part; /* of what ssh says */
    const char *meaning, *todo;
} advice;

static const advice ssh_advice[] = {
    {"Permission denied", "no login without a password",
     "`ssh-copy-id HOST` puts your key there, `SSH -o BatchMode=yes HOST true` tries it"},
    {"assword", "no login without a password",
     "`ssh-copy-id HOST` puts your key there, `SSH -o BatchMode=yes HOST true` tries it"},
    {"Host key verification failed", "its key is not known here, or has changed",
     "`SSH HOST true` once by hand asks whether to trust it"},
    {"Could not resolve", "no host has that name", "see /etc/hosts and ~/.ssh/config"},
    {"Name or service not known", "no host has that name", "see /etc/hosts and ~/.ssh/config"},
    {"Connection refused", "no ssh server listens there",
     "start it, or name its port: --ssh \"ssh -p PORT\""},
    {"timed out", "it does not answer", "is it up, and in this network?"},
    {"No route to host", "there is no way to it", "is it up, and in this network?"},
    {"Network is unreachable", "there is no way to it", "is this host in a network?"},
};

/* HOST in the text stands for the host's name, SSH for the command that calls ssh. */
static void put_advice(const char *todo, const char *ssh, const char *host, char *text,
                       size_t bytes) {
    while (*todo) {
        bool is_host = strncmp(todo, "HOST", 4) == 0, is_ssh = strncmp(todo, "SSH", 3) == 0;
        if (is_host || is_ssh)
            rpi_append(text, bytes, "%s", is_host ? host : ssh);
        else
            rpi_append(text, bytes, "%c", *todo);
        todo += is_host ? 4 : is_ssh ? 3 : 1;
    }
}

static const advice *find_advice(const char *said) {
    for (size_t i = 0; i < sizeof ssh_advice / sizeof ssh_advice[0]; i++)
        if (strstr(said, ssh_advice[i].part)) return &ssh_advice[i];
    return NULL;
}

const char *rpi_remote_shell_explain(const rpi_remote_shell *shell, const char *host, int code,
                                     const char *said, char *text, size_t bytes) {
    char todo[600] = "";
    const char *colon = *said ? ": " : "";
    const advice *found = code == SSH_FAILED || code < 0 ? find_advice(said) : NULL;
    if (found) {
        put_advice(found->todo, shell->command, host, todo, sizeof todo);
        snprintf(text, bytes, "%s (%s); %s", found->meaning, said, todo);
    } else if (code < 0) {
        snprintf(text, bytes,
                 "did not answer in time (--answer-timeout); does `%s %s true` end? %s",
                 shell->command, host, said);
    } else if (code == SSH_FAILED) {
        snprintf(text, bytes, "cannot be reached by `%s %s`%s%s", shell->command, host, colon,
                 said);
    } else if (code == NOT_FOUND || code == NOT_EXECUTABLE) {
        snprintf(text, bytes,
                 "there is no redpoll, neither at %s nor in the PATH of a shell without login; "
                 "install it, or say where it is with --remote-redpoll PATH%s%s",
                 shell->redpoll, colon, said);
    } else if (code == MISUSED) {
        snprintf(text, bytes,
                 "its redpoll is of another version, which cannot be told what to run; install "
                 "this one, or name it with --remote-redpoll PATH%s%s",
                 colon, said);
    } else {
        snprintf(text, bytes, "the remote shell ended with code %d%s%s", code, colon, said);
    }
    return text;
}
