/* Emits tokens on a known schedule, faster than any client of it can read: one thread, one epoll.
 *
 * emitter LOG FIRST_MS GAP_MS: listens on a free port of 127.0.0.1, says it on stdout, and serves
 * streamed completions of max_tokens tokens, one a chunk, the first FIRST_MS after the request was
 * read, the others GAP_MS apart. What is late is sent at once and does not move what follows.
 * On SIGTERM it writes LOG as the reference server does: a line with its clock, then one a request
 * (X-Request-Id, when it was read, when each token was written and when it was due), ns of
 * CLOCK_MONOTONIC, read just before the write.
 *
 * Texts of a request's tokens are " H", H being the hex digits of its number in LOG, turn by turn,
 * lowest first, DIGITS of them: a client that keeps the text tells which request it belongs to.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define DIGITS 5
#define MAX_FD 65536
#define AT_ONCE 32 /* events written between two looks at the sockets */
#define FRAME 512

typedef struct request {
    struct request *next; /* in the queue of its next event */
    int fd;
    int alive, sent, count, digit_at, frame_size, number, usage;
    int64_t received, due;
    int64_t *emitted;
    char id[72];
    char frame[2 * FRAME];
} request;

typedef struct {
    request *head, *tail;
} queue;

typedef struct {
    char *data;
    size_t size, room;
    char *unsent;
    size_t unsent_size;
    request *request;
} peer;

static peer *peers[MAX_FD];
static request **requests;
static int request_count, request_room;
/* All first events come a fixed time after a request, all others a fixed time after the one
 * before: each of the two queues is in the order of time as it grows. */
static queue first_events, other_events;
static int64_t first_ns, gap_ns;
static int poller, timer;
static volatile sig_atomic_t ended;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void end(int number) {
    (void)number;
    ended = 1;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *grown(void *block, size_t size) {
    void *found = realloc(block, size);
    if (found == NULL) fail("memory");
    return found;
}

static void push(queue *q, request *r) {
    r->next = NULL;
    if (q->head == NULL) q->head = r;
    else q->tail->next = r;
    q->tail = r;
}

static request *earliest(queue **from) {
    *from = &first_events;
    if (first_events.head == NULL ||
        (other_events.head != NULL && other_events.head->due < first_events.head->due))
        *from = &other_events;
    return (*from)->head;
}

static void watch(int fd, uint32_t events, int how) {
    struct epoll_event e = {.events = events, .data.fd = fd};
    if (epoll_ctl(poller, how, fd, &e)) fail("epoll_ctl");
}

static void put(int fd, const char *data, size_t size) {
    peer *p = peers[fd];
    if (p == NULL) return;
    if (p->unsent_size == 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)size) return;
        if (n < 0 && errno != EAGAIN) return; /* the end of the connection is read later */
        if (n > 0) data += n, size -= n;
        watch(fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
    p->unsent = grown(p->unsent, p->unsent_size + size);
    memcpy(p->unsent + p->unsent_size, data, size);
    p->unsent_size += size;
}

static void flush_unsent(int fd) {
    peer *p = peers[fd];
    ssize_t n = send(fd, p->unsent, p->unsent_size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        memmove(p->unsent, p->unsent + n, p->unsent_size - n);
        p->unsent_size -= n;
    }
    if (p->unsent_size == 0) watch(fd, EPOLLIN, EPOLL_CTL_MOD);
}

static int chunk(char *out, const char *body) {
    return sprintf(out, "%zx\r\n%s\r\n", strlen(body), body);
}

static const char EVENT[] =
    "data: {\"id\":\"cmpl-%08d\",\"object\":\"text_completion\",\"created\":1,\"model\":\"reference\","
    "\"choices\":[{\"index\":0,\"text\":\" %c\",\"logprobs\":null,\"finish_reason\":%s}]}\n\n";

static void emit(request *r) {
    char text[3 * FRAME], body[FRAME];
    char digit = "0123456789abcdef"[(r->number >> (4 * (r->sent % DIGITS))) & 15];
    if (r->sent + 1 < r->count) {
        r->frame[r->digit_at] = digit;
        r->emitted[r->sent++] = now_ns();
        put(r->fd, r->frame, r->frame_size);
        r->due += gap_ns;
        push(&other_events, r);
        return;
    }
    snprintf(body, sizeof body, EVENT, r->number, digit, "\"length\"");
    int size = chunk(text, body);
    snprintf(body, sizeof body,
             "data: {\"id\":\"cmpl-%08d\",\"object\":\"text_completion\",\"created\":1,"
             "\"model\":\"reference\",\"choices\":[],\"usage\":{\"prompt_tokens\":16,"
             "\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
             r->number, 16 + r->count, r->count);
    if (r->usage) size += chunk(text + size, body);
    size += chunk(text + size, "data: [DONE]\n\n");
    size += sprintf(text + size, "0\r\n\r\n");
    r->emitted[r->sent++] = now_ns();
    peers[r->fd]->request = NULL;
    r->alive = 0;
    put(r->fd, text, size);
}

static void reply(int fd, const char *status, const char *body) {
    char text[FRAME];
    int size = snprintf(text, sizeof text,
                        "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\n\r\n%s",
                        status, strlen(body), body);
    put(fd, text, size);
}

static void begin(int fd, const char *head, const char *body, int64_t received) {
    static const char HEAD[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\n\r\n";
    request *r = calloc(1, sizeof *r);
    if (r == NULL) fail("memory");
    if (request_count == request_room)
        requests = grown(requests, (request_room = request_room * 2 + 1024) * sizeof *requests);
    r->number = request_count;
    requests[request_count++] = r;
    const char *at = strstr(body, "tokens\":"); /* of max_tokens or max_completion_tokens */
    r->count = at ? atoi(at + 8) : 16;
    if (r->count < 1) r->count = 1;
    r->usage = strstr(body, "\"include_usage\"") != NULL;
    at = strcasestr(head, "\r\nx-request-id:");
    if (at == NULL || sscanf(at + 15, " %71[^\r \"]", r->id) != 1) strcpy(r->id, "-");
    r->emitted = calloc(r->count, sizeof *r->emitted);
    if (r->emitted == NULL) fail("memory");
    char text[FRAME];
    snprintf(text, sizeof text, EVENT, r->number, '?', "null");
    r->frame_size = chunk(r->frame, text);
    r->digit_at = strchr(r->frame, '?') - r->frame;
    r->fd = fd;
    r->alive = 1;
    r->received = received;
    r->due = received + first_ns;
    peers[fd]->request = r;
    put(fd, HEAD, sizeof HEAD - 1);
    push(&first_events, r);
}

static void answer(int fd) {
    peer *p = peers[fd];
    while (p->request == NULL) {
        p->data[p->size] = 0;
        char *stop = strstr(p->data, "\r\n\r\n");
        if (stop == NULL) return;
        char *length = strcasestr(p->data, "\r\ncontent-length:");
        char *body = stop + 4;
        size_t whole = (body - p->data) + (length && length < stop ? atoi(length + 17) : 0);
        if (p->size < whole) return;
        int64_t received = now_ns();
        char kept = p->data[whole];
        p->data[whole] = 0;
        if (!strncmp(p->data, "POST /v1/completions ", 21)) begin(fd, p->data, body, received);
        else if (!strncmp(p->data, "GET /v1/models", 14))
            reply(fd, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"reference\"}]}");
        else if (!strncmp(p->data, "GET /health", 11)) reply(fd, "200 OK", "{}");
        else reply(fd, "404 Not Found", "{}");
        p->data[whole] = kept;
        memmove(p->data, p->data + whole, p->size - whole);
        p->size -= whole;
    }
}

static void lose(int fd) {
    peer *p = peers[fd];
    if (p->request) p->request->alive = 0;
    peers[fd] = NULL;
    close(fd);
    free(p->data);
    free(p->unsent);
    free(p);
}

static void take(int fd) {
    peer *p = peers[fd];
    for (;;) {
        if (p->size + 1 >= p->room) p->data = grown(p->data, p->room = p->room * 2 + 8192);
        ssize_t n = recv(fd, p->data + p->size, p->room - p->size - 1, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            lose(fd);
            return;
        }
        p->size += n;
        if (p->size + 1 < p->room) break;
    }
    answer(fd);
}

static void welcome(int listener) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FD) fail("descriptors");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        peers[fd] = calloc(1, sizeof(peer));
        if (peers[fd] == NULL) fail("memory");
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void write_log(const char *path) {
    FILE *log = fopen(path, "w");
    if (log == NULL) fail(path);
    struct timespec wall;
    int64_t mono = now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    fprintf(log, "{\"clock\":{\"wall_ns\":%ld,\"mono_ns\":%ld}}\n",
            (long)(wall.tv_sec * 1000000000LL + wall.tv_nsec), (long)mono);
    for (int i = 0; i < request_count; i++) {
        request *r = requests[i];
        fprintf(log, "{\"id\":\"%s\",\"received_ns\":%ld,\"t_ns\":[", r->id, (long)r->received);
        for (int k = 0; k < r->sent; k++)
            fprintf(log, k ? ",%ld" : "%ld", (long)r->emitted[k]);
        fputs("],\"due_ns\":[", log);
        for (int k = 0; k < r->sent; k++)
            fprintf(log, k ? ",%ld" : "%ld", (long)(r->received + first_ns + k * gap_ns));
        fputs("]}\n", log);
    }
    if (fclose(log)) fail(path);
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: emitter LOG FIRST_MS GAP_MS\n");
        return 2;
    }
    first_ns = atof(words[2]) * 1e6;
    gap_ns = atof(words[3]) * 1e6;
    struct sigaction act = {.sa_handler = end};
    sigaction(SIGTERM, &act, NULL);
    struct sockaddr_in where = {.sin_family = AF_INET};
    socklen_t size = sizeof where;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (void *)&where, size) || listen(listener, 4096)) fail("listen");
    getsockname(listener, (void *)&where, &size);
    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);
    watch(timer, EPOLLIN, EPOLL_CTL_ADD);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    struct epoll_event ready[256];
    queue *from;
    while (!ended) {
        request *r = earliest(&from);
        int wait = -1;
        if (r != NULL) {
            wait = r->due <= now_ns() ? 0 : -1;
            if (wait) {
                struct itimerspec at = {.it_value = {r->due / 1000000000, r->due % 1000000000}};
                timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
            }
        }
        int n = epoll_wait(poller, ready, 256, wait);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            uint64_t ticks;
            if (fd == timer) (void)!read(timer, &ticks, sizeof ticks);
            else if (fd == listener) welcome(listener);
            else {
                if (ready[i].events & EPOLLOUT) flush_unsent(fd);
                if (ready[i].events & ~EPOLLOUT) take(fd);
            }
        }
        for (int i = 0; i < AT_ONCE && (r = earliest(&from)) != NULL && r->due <= now_ns(); i++) {
            from->head = r->next;
            int fd = r->fd;
            if (!r->alive) continue;
            emit(r);
            if (!r->alive) answer(fd);
        }
    }
    write_log(words[1]);
    return 0;
}
