#include "policy.h"

#include "proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_LEAST 16u /* fewer bytes can be guessed */
#define LINE_BYTES (POLICY_NAME + PROTO_MAX_TOKEN + 8)

static enum xop_status refuse(struct xop_error *error, const char *path, const char *why) {
    return xop_fail(error, XOP_INVALID_ARGUMENT, "server.tokens: %.200s %s", path, why);
}

/* Whoever can read the file is whoever they like, and whoever can change it too. */
static enum xop_status check_file(int fd, const char *path, struct xop_error *error) {
    struct stat info;
    if (fstat(fd, &info) < 0)
        return refuse(error, path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return refuse(error, path, "is no regular file");
    if (info.st_uid != 0 && info.st_uid != geteuid())
        return refuse(error, path, "belongs neither to root nor to the user that xopd runs as");
    if (info.st_mode & S_IRWXO)
        return refuse(error, path, "can be read or changed by others: chmod o= it");
    if (info.st_mode & S_IWGRP)
        return refuse(error, path, "can be changed by its group: chmod g-w it");
    return XOP_OK;
}

/* The digest of a token, or the one that is given in its place. */
static bool read_digest(const char *text, unsigned char digest[static POLICY_DIGEST],
                        const char **why) {
    if (strncmp(text, "sha256:", strlen("sha256:")) == 0) {
        const char *hex = text + strlen("sha256:");
        size_t bytes;
        ERR_clear_error();
        bool whole = strlen(hex) == 2 * POLICY_DIGEST &&
                     OPENSSL_hexstr2buf_ex(digest, POLICY_DIGEST, &bytes, hex, '\0') == 1;
        ERR_clear_error();
        if (!whole)
            *why = "sha256: is followed by 64 hexadecimal digits: printf %s TOKEN | sha256sum "
                   "prints them";
        return whole;
    }
    if (strlen(text) < TOKEN_LEAST || strlen(text) > PROTO_MAX_TOKEN) {
        *why = "a token has 16 to 4096 bytes: openssl rand -hex 32 makes one";
        return false;
    }
    policy_digest(text, digest);
    return true;
}

static enum xop_status add_token(struct policy *policy, const char *name, const char *token,
                                 const char **why) {
    struct policy_token *added = &policy->tokens[policy->ntokens];
    *why = NULL;
    if (policy->ntokens == POLICY_TOKENS)
        *why = "there are more than 256 tokens";
    else if (!policy_is_name(name))
        *why = "a token's name has 1 to 39 letters, digits, dots, dashes and the like";
    else if (read_digest(token, added->digest, why) && policy_token_name(policy, added->digest))
        *why = "the token is another's already";
    for (uint32_t i = 0; i < policy->ntokens && !*why; i++)
        if (strcmp(policy->tokens[i].name, name) == 0)
            *why = "the name is given twice";
    if (*why)
        return XOP_INVALID_ARGUMENT;
    strcpy(added->name, name);
    policy->ntokens++;
    return XOP_OK;
}

static enum xop_status take_line(struct policy *policy, char *line, const char **why) {
    static const char blanks[] = " \t\r\n";
    char *state;
    size_t length = strlen(line);
    *why = NULL;
    if (length == LINE_BYTES - 1 && line[length - 1] != '\n') {
        *why = "the line is too long";
        return XOP_INVALID_ARGUMENT;
    }
    const char *name = strtok_r(line, blanks, &state);
    if (!name || *name == '#')
        return XOP_OK;
    const char *token = strtok_r(NULL, blanks, &state);
    if (token && !strtok_r(NULL, blanks, &state))
        return add_token(policy, name, token, why);
    *why = "a name, a blank and a token are expected";
    return XOP_INVALID_ARGUMENT;
}

enum xop_status policy_read_tokens(struct policy *policy, const char *path,
                                   struct xop_error *error) {
    char line[LINE_BYTES];
    const char *why;
    enum xop_status status = XOP_OK;
    policy->ntokens = 0; /* those of an earlier reading are no more */
    /* A pipe must not hold the start up before it is seen to be none. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return refuse(error, path, strerror(errno));
    if (check_file(fd, path, error) != XOP_OK) {
        close(fd);
        return error->status;
    }
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return refuse(error, path, strerror(errno));
    }
    setvbuf(file, NULL, _IONBF, 0); /* no copy of a token stays in a buffer that was freed */
    for (int number = 1; status == XOP_OK && fgets(line, sizeof line, file); number++)
        if (take_line(policy, line, &why) != XOP_OK)
            status = xop_fail(error, XOP_INVALID_ARGUMENT, "server.tokens: %.200s:%d: %s", path,
                              number, why);
    if (status == XOP_OK && ferror(file))
        status = refuse(error, path, strerror(errno));
    OPENSSL_cleanse(line, sizeof line);
    fclose(file);
    return status;
}
