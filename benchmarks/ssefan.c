// ssefan: one writer, many SSE subscribers, one clock.
//
//   ssefan PORT PATH SUBSCRIBERS EVENTS_PER_SECOND WARMUP_SECONDS SECONDS BODY_BYTES
//
// Opens SUBSCRIBERS server-sent-event connections to PATH on 127.0.0.1 and, once every one of them has
// heard from the server, appends messages at a fixed pace over one keep-alive connection of its own. Each
// message says its number and the nanosecond it was sent, so a delivery's latency is "arrived minus sent"
// on a single clock. A server too slow for the pace holds the writer up; the run then ends on time, with
// fewer events, and says so. The stream must exist, with content type text/plain. Prints one JSON object;
// exits 1 with a sentence on stderr when the run could not take place.
//
// Two threads: the writer sleeps until its next send is due, whatever the readers are doing; the main
// thread reads all subscriptions through one epoll set.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define SUBSCRIBE_TIMEOUT_NS (20 * SECOND_NS)
#define LAST_EVENT_GRACE_NS (5 * SECOND_NS)
#define ANSWER_TIMEOUT_SECONDS 5
#define MAX_BODY 65536
#define MAX_HEAD 8192

// ---- what the run is, and what it found ----

static int port;
static const char *path;
static int subscriber_count;
static int events_due;
static int64_t warmup_ns;
static int body_bytes;
static int64_t period_ns;

static _Atomic int64_t first_send_ns;  // the schedule's origin, set by the writer; 0 until then
static _Atomic int64_t last_send_ns;   // set by the writer when it is done; 0 until then
static _Atomic int events_sent;        // accepted by the server
static _Atomic int append_failures;

static int64_t *from_send_ns;      // one sample per delivery after the warm-up: arrived - sent
static int64_t *from_schedule_ns;  // the same, arrived - the moment it should have been sent
static size_t sample_count;
static size_t sample_room;
static size_t delivered;  // every delivery, warm-up included
static int misordered;    // deliveries whose number was not the one after the last
static int closed_early;  // subscriptions that the server ended

// ---- small things ----

static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("ssefan: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void sleep_until(int64_t when_ns) {
    struct timespec t = {.tv_sec = when_ns / SECOND_NS, .tv_nsec = when_ns % SECOND_NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static int connect_to_server(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("cannot open a socket (%s); raise the open-file limit: ulimit -n 8192", strerror(errno));
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("cannot connect to 127.0.0.1:%d (%s)", port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct timeval patience = {.tv_sec = ANSWER_TIMEOUT_SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static bool send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        length -= sent;
    }
    return true;
}

// ---- the writer ----

// Reads one response with no body or a Content-Length body. True for a 2xx answer.
static bool read_answer(int fd) {
    char text[MAX_HEAD + 1];
    size_t used = 0;
    char *head_end = NULL;
    while (head_end == NULL) {
        if (used == MAX_HEAD) return false;
        ssize_t got = recv(fd, text + used, MAX_HEAD - used, 0);
        if (got <= 0) return false;
        used += got;
        text[used] = 0;
        head_end = strstr(text, "\r\n\r\n");
    }
    size_t body_seen = used - (head_end + 4 - text);
    *head_end = 0;
    char *length_header = strcasestr(text, "\r\nContent-Length:");
    size_t body_length = length_header ? strtoul(length_header + 17, NULL, 10) : 0;
    while (body_seen < body_length) {
        ssize_t got = recv(fd, text, sizeof text, 0);
        if (got <= 0) return false;
        body_seen += got;
    }
    return strncmp(text, "HTTP/1.1 2", 10) == 0;
}

static size_t format_append(char *request, int number, int64_t sent_ns) {
    int head = sprintf(request,
                       "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                       "Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
                       path, port, body_bytes);
    int token = sprintf(request + head, "seq=%d sent=%lld ", number, (long long)sent_ns);
    memset(request + head + token, '.', body_bytes - token);
    return head + body_bytes;
}

static void *write_events(void *unused) {
    static char request[MAX_BODY + MAX_HEAD];
    int fd = connect_to_server();
    int64_t origin = now_ns() + period_ns;
    int64_t end = origin + events_due * period_ns;
    first_send_ns = origin;
    for (int number = 0; number < events_due; number++) {
        sleep_until(origin + number * period_ns);
        int64_t sent_ns = now_ns();
        if (sent_ns > end) break;
        size_t length = format_append(request, number, sent_ns);
        if (send_all(fd, request, length) && read_answer(fd)) {
            events_sent++;
            continue;
        }
        append_failures++;
        close(fd);
        fd = connect_to_server();
    }
    close(fd);
    last_send_ns = now_ns();
    return unused;
}

// ---- the subscriptions: HTTP head, chunked coding, then the message tokens ----

enum place { IN_HEAD, IN_SIZE, IN_DATA, AFTER_DATA, UNFRAMED };

struct subscription {
    int fd;
    enum place place;
    char *head;       // response head so far; freed once understood
    size_t head_used;
    size_t left;      // bytes left of this chunk
    bool size_ended;  // past the hex digits of a chunk size (extensions, CR)
    bool heard;       // at least one byte of events has arrived
    int matched;      // characters of the token's fixed parts seen so far
    int64_t number, sent_ns;
    int64_t last_number;
};

static void record(struct subscription *s, int64_t arrived_ns) {
    delivered++;
    if (s->number != s->last_number + 1) misordered++;
    s->last_number = s->number;
    if (s->sent_ns < first_send_ns + warmup_ns || sample_count == sample_room) return;
    from_send_ns[sample_count] = arrived_ns - s->sent_ns;
    from_schedule_ns[sample_count] = arrived_ns - (first_send_ns + s->number * period_ns);
    sample_count++;
}

// Finds "seq=<number> sent=<number> " anywhere in the events, however the bytes were cut up on the way.
static void scan(struct subscription *s, const char *bytes, size_t length, int64_t arrived_ns) {
    static const char fixed[] = "seq=#sent=#";  // '#' stands for digits and the space that ends them
    const int first_number = 4, second_number = 10;
    if (length > 0) s->heard = true;
    for (size_t i = 0; i < length; i++) {
        char c = bytes[i];
        if (s->matched == first_number || s->matched == second_number) {
            int64_t *value = s->matched == first_number ? &s->number : &s->sent_ns;
            if (c >= '0' && c <= '9') {
                *value = *value * 10 + (c - '0');
                continue;
            }
            bool complete = c == ' ' && s->matched == second_number;
            if (complete) record(s, arrived_ns);
            s->matched = c == ' ' && !complete ? s->matched + 1 : 0;
        } else if (c == fixed[s->matched]) {
            s->matched++;
            if (s->matched == first_number) s->number = s->sent_ns = 0;
        } else {
            s->matched = c == fixed[0] ? 1 : 0;
        }
    }
}

static size_t take_head(struct subscription *s, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (s->head_used == MAX_HEAD) fail("a response head is longer than %d bytes", MAX_HEAD);
        s->head[s->head_used++] = bytes[i];
        if (s->head_used < 4 || memcmp(s->head + s->head_used - 4, "\r\n\r\n", 4) != 0) continue;
        s->head[s->head_used] = 0;
        if (strncmp(s->head, "HTTP/1.1 200", 12) != 0) fail("a subscription was refused: %.60s", s->head);
        s->place = strcasestr(s->head, "\r\nTransfer-Encoding: chunked") ? IN_SIZE : UNFRAMED;
        free(s->head);
        s->head = NULL;
        return i + 1;
    }
    return length;
}

static void take_size_character(struct subscription *s, char c) {
    if (c == '\n') {
        // A chunk of length zero ends the response; the connection's end is noticed by the reader.
        s->place = IN_DATA;
        s->size_ended = false;
        return;
    }
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 32) : NULL;
    int digit = found ? (int)(found - digits) : -1;
    if (digit < 0) s->size_ended = true;
    if (!s->size_ended) s->left = s->left * 16 + digit;
}

static void feed(struct subscription *s, const char *bytes, size_t length, int64_t arrived_ns) {
    size_t i = 0;
    while (i < length) {
        if (s->place == IN_HEAD) {
            i += take_head(s, bytes + i, length - i);
        } else if (s->place == IN_SIZE) {
            take_size_character(s, bytes[i++]);
        } else if (s->place == IN_DATA) {
            size_t take = length - i < s->left ? length - i : s->left;
            scan(s, bytes + i, take, arrived_ns);
            s->left -= take;
            i += take;
            if (s->left == 0) s->place = AFTER_DATA;
        } else if (s->place == AFTER_DATA) {
            if (bytes[i++] == '\n') s->place = IN_SIZE;
        } else {
            scan(s, bytes + i, length - i, arrived_ns);
            i = length;
        }
    }
}

static void subscribe(struct subscription *s, int epoll) {
    char request[MAX_HEAD];
    int length = snprintf(request, sizeof request,
                          "GET %s?offset=now&live=sse HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                          "Accept: text/event-stream\r\n\r\n",
                          path, port);
    s->fd = connect_to_server();
    s->head = malloc(MAX_HEAD + 1);
    s->last_number = -1;
    if (!send_all(s->fd, request, length)) fail("cannot send a subscription (%s)", strerror(errno));
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = s};
    epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd, &interest);
}

// One turn of the event loop: reads whatever has arrived, for at most `wait_ms`.
static void read_arrivals(int epoll, int wait_ms) {
    static char buffer[65536];
    struct epoll_event ready[1024];
    int count = epoll_wait(epoll, ready, 1024, wait_ms);
    for (int i = 0; i < count; i++) {
        struct subscription *s = ready[i].data.ptr;
        ssize_t got = recv(s->fd, buffer, sizeof buffer, 0);
        if (got > 0) {
            feed(s, buffer, got, now_ns());
        } else if (got == 0 || errno != EAGAIN) {
            closed_early++;
            close(s->fd);
        }
    }
}

static int count_heard(const struct subscription *all) {
    int heard = 0;
    for (int i = 0; i < subscriber_count; i++) heard += all[i].heard;
    return heard;
}

static void wait_until_all_heard(const struct subscription *all, int epoll) {
    int64_t deadline = now_ns() + SUBSCRIBE_TIMEOUT_NS;
    while (count_heard(all) < subscriber_count) {
        if (now_ns() > deadline)
            fail("only %d of %d subscriptions heard from the server", count_heard(all), subscriber_count);
        read_arrivals(epoll, 50);
    }
}

static bool run_is_over(void) {
    if (last_send_ns == 0) return false;
    bool all_arrived = delivered >= (size_t)events_sent * subscriber_count;
    return all_arrived || now_ns() > last_send_ns + LAST_EVENT_GRACE_NS;
}

// ---- the report ----

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(const int64_t *sorted, double q) {
    if (sample_count == 0) return 0;
    size_t rank = (size_t)(q * sample_count);
    return sorted[rank < sample_count ? rank : sample_count - 1] / 1e6;
}

static void print_quantiles(const char *name, int64_t *samples) {
    qsort(samples, sample_count, sizeof *samples, compare);
    printf(", \"%s\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f}", name,
           quantile_ms(samples, 0.5), quantile_ms(samples, 0.9), quantile_ms(samples, 0.99),
           quantile_ms(samples, 1));
}

static void print_report(void) {
    double seconds = (last_send_ns - first_send_ns) / 1e9;
    size_t expected = (size_t)events_sent * subscriber_count;
    double pace = seconds > 0 ? events_sent / seconds : 0;
    printf("{\"subscribers\": %d, \"events_due\": %d, \"events_sent\": %d, \"events_per_second\": %.2f",
           subscriber_count, events_due, events_sent, pace);
    printf(", \"expected\": %zu, \"delivered\": %zu, \"dropped\": %zd, \"samples\": %zu", expected, delivered,
           (ssize_t)(expected - delivered), sample_count);
    printf(", \"misordered\": %d, \"closed_early\": %d, \"append_failures\": %d", misordered, closed_early,
           append_failures);
    print_quantiles("from_send_ms", from_send_ns);
    print_quantiles("from_schedule_ms", from_schedule_ns);
    puts("}");
}

int main(int argc, char **argv) {
    if (argc != 8)
        fail("usage: ssefan PORT PATH SUBSCRIBERS EVENTS_PER_SECOND WARMUP_SECONDS SECONDS BODY_BYTES");
    port = atoi(argv[1]);
    path = argv[2];
    subscriber_count = atoi(argv[3]);
    double rate = atof(argv[4]);
    double warmup_seconds = atof(argv[5]);
    double seconds = atof(argv[6]);
    body_bytes = atoi(argv[7]);
    events_due = (int)(rate * (warmup_seconds + seconds));
    warmup_ns = (int64_t)(warmup_seconds * SECOND_NS);
    if (rate <= 0 || subscriber_count < 1 || seconds <= 0 || events_due < 1) fail("nothing to measure");
    if (body_bytes < 64 || body_bytes > MAX_BODY) fail("BODY_BYTES must be from 64 to %d", MAX_BODY);
    period_ns = (int64_t)(SECOND_NS / rate);

    sample_room = (size_t)events_due * subscriber_count;
    from_send_ns = malloc(sample_room * sizeof *from_send_ns);
    from_schedule_ns = malloc(sample_room * sizeof *from_schedule_ns);
    struct subscription *all = calloc(subscriber_count, sizeof *all);
    if (!from_send_ns || !from_schedule_ns || !all) fail("out of memory");

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < subscriber_count; i++) subscribe(&all[i], epoll);
    wait_until_all_heard(all, epoll);

    pthread_t writer;
    if (pthread_create(&writer, NULL, write_events, NULL) != 0) fail("cannot start the writer thread");
    while (!run_is_over()) read_arrivals(epoll, 20);
    pthread_join(writer, NULL);
    print_report();
    return 0;
}
