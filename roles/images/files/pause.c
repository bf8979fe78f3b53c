/* The program of a pod's pause container: holds the namespaces, reaps orphans, and probes what its stdin tells it.
 *
 * Input, one line each ("+" lines make up a table, "=" puts it in the place of the one before):
 *   + ID KIND ADDRESS PORT INITIAL_MS PERIOD_MS TIMEOUT_MS SUCCESS FAILURE PAYLOAD
 *   = GENERATION
 * KIND is http, tcp or grpc; ADDRESS is of IPv4 or IPv6; PAYLOAD is what to send, in hex ("-": nothing). A check whose line is the same but for
 * INITIAL_MS goes on with what it knows. Output, after each table and whenever a result changes, the whole state:
 *   ! GENERATION ID:STATE:STREAK:CAUSE:NUMBER ...
 * STATE is u (unknown), s (success) or f (failure) by the thresholds; STREAK counts equal results in a row; CAUSE with
 * its NUMBER tells the last one: ok 0, http STATUS, errno E, timeout 0, closed 0, grpc SERVING_STATUS, malformed 0.
 *
 * One thread, one poll, no allocation while nothing changes. The writer of stdin may end: probing goes on, and the next
 * one sends its table and gets the state. Built with -static; the source is the contract with gateway/probing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CHECKS = 256, REPLY_MAX = 4096, BODY_MAX = 10240, INPUT_MAX = 1 << 20, OUTPUT_MAX = 1 << 16 };
enum kind { HTTP, TCP, GRPC };
enum phase { IDLE, CONNECTING, READING };

union address {
	struct sockaddr any;
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};

struct check {
	char *line; /* everything but INITIAL_MS: what makes it the same check */
	char *id;
	enum kind kind;
	union address address;
	socklen_t address_size;
	long period_ms, timeout_ms;
	int success, failure;
	unsigned char *payload;
	size_t payload_size;
	/* what is known */
	char state;
	int streak, good, number;
	const char *cause;
	/* the probe under way */
	enum phase phase;
	int socket, status;
	long long due_ms, began_ms;
	size_t sent, got, total;
	unsigned char reply[REPLY_MAX];
};

static struct check *table[MAX_CHECKS], *coming[MAX_CHECKS];
static int table_size, coming_size, changed;
static char generation[64] = "-";
static char input[INPUT_MAX], output[OUTPUT_MAX];
static size_t input_size, output_size, output_at;
static volatile sig_atomic_t ended;

static void on_end(int signal_number) { (void)signal_number; ended = 1; }
static void on_child(int signal_number) { (void)signal_number; }

static long long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void hang_up(struct check *check)
{
	if (check->phase != IDLE)
		close(check->socket);
	check->phase = IDLE;
}

static void release(struct check *check)
{
	hang_up(check);
	free(check->line);
	free(check->id);
	free(check->payload);
	free(check);
}

/* Takes a result in: thresholds count equal results in a row, as kubelet's prober does. */
static void conclude(struct check *check, int good, const char *cause, int number, long long now)
{
	char before = check->state;
	int news = strcmp(cause, check->cause) != 0 || number != check->number;
	hang_up(check);
	check->streak = good == check->good ? check->streak + 1 : 1;
	check->good = good;
	check->cause = cause;
	check->number = number;
	if (check->streak >= (good ? check->success : check->failure))
		check->state = good ? 's' : 'f';
	check->due_ms = check->began_ms + check->period_ms;
	if (check->due_ms < now)
		check->due_ms = now;
	if (check->state != before || (!good && (news || check->streak <= check->failure)))
		changed = 1;
}

static void begin(struct check *check, long long now)
{
	struct linger linger = {1, 0};
	int one = 1;
	check->began_ms = now;
	check->sent = check->got = check->total = 0;
	check->status = -1;
	check->socket = socket(check->address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (check->socket < 0) {
		conclude(check, 0, "errno", errno, now);
		return;
	}
	check->phase = CONNECTING;
	setsockopt(check->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (check->kind == TCP) /* no TIME_WAIT behind a connection that carried nothing */
		setsockopt(check->socket, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	if (connect(check->socket, &check->address.any, check->address_size) < 0 && errno != EINPROGRESS)
		conclude(check, 0, "errno", errno, now);
}

static void conclude_http(struct check *check, long long now)
{
	conclude(check, check->status >= 200 && check->status < 400, "http", check->status, now);
}

/* The status line decides; the body is read so that the server is not cut off in the middle of it. */
static void read_http(struct check *check, long long now, ssize_t size)
{
	check->total += size > 0 ? (size_t)size : 0;
	if (check->status < 0 && check->got >= 13) {
		if (memcmp(check->reply, "HTTP/", 5) == 0)
			check->status = atoi((char *)check->reply + 8);
		if (check->status < 100 || check->status > 999) {
			conclude(check, 0, "malformed", 0, now);
			return;
		}
	}
	if (check->status >= 0)
		check->got = 0;
	if (size <= 0 || check->total >= BODY_MAX) {
		if (check->status >= 0)
			conclude_http(check, now);
		else
			conclude(check, 0, "closed", 0, now);
	}
}

/* Returns the serving status of a HealthCheckResponse behind gRPC's 5 bytes, 0 (UNKNOWN) where it is left out. */
static int serving_status(const unsigned char *data, size_t size)
{
	return size >= 7 && data[5] == 0x08 ? data[6] : 0;
}

static void read_grpc(struct check *check, long long now, ssize_t size)
{
	static const unsigned char settings_ack[9] = {0, 0, 0, 4, 1, 0, 0, 0, 0};
	size_t at = 0;
	while (check->got - at >= 9) {
		const unsigned char *frame = check->reply + at;
		size_t length = (size_t)frame[0] << 16 | frame[1] << 8 | frame[2];
		if (check->got - at < 9 + length)
			break;
		if (frame[3] == 4 && !(frame[4] & 1) && send(check->socket, settings_ack, 9, MSG_NOSIGNAL) < 0)
			break;
		if (frame[3] == 0 && length) {
			int status = serving_status(frame + 9, length);
			conclude(check, status == 1, "grpc", status, now);
			return;
		}
		if ((frame[3] == 1 && frame[4] & 1) || frame[3] == 3 || frame[3] == 7) { /* an end without an answer */
			conclude(check, 0, "grpc", -1, now);
			return;
		}
		at += 9 + length;
	}
	memmove(check->reply, check->reply + at, check->got - at);
	check->got -= at;
	if (size <= 0)
		conclude(check, 0, "closed", 0, now);
	else if (check->got == REPLY_MAX)
		conclude(check, 0, "malformed", 0, now);
}

static void go_on(struct check *check, short events, long long now)
{
	int error = 0;
	socklen_t length = sizeof error;
	if (check->phase == CONNECTING) {
		getsockopt(check->socket, SOL_SOCKET, SO_ERROR, &error, &length);
		if (error) {
			conclude(check, 0, "errno", error, now);
			return;
		}
		if (check->kind == TCP) {
			conclude(check, 1, "ok", 0, now);
			return;
		}
		check->phase = READING;
	}
	if (check->sent < check->payload_size) {
		ssize_t sent = send(check->socket, check->payload + check->sent, check->payload_size - check->sent, MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN) {
			conclude(check, 0, "errno", errno, now);
			return;
		}
		check->sent += sent > 0 ? (size_t)sent : 0;
	}
	if (events & (POLLIN | POLLHUP | POLLERR)) {
		ssize_t size = recv(check->socket, check->reply + check->got, REPLY_MAX - check->got, 0);
		if (size < 0 && errno == EAGAIN)
			return;
		if (size < 0 && check->status < 0) {
			conclude(check, 0, "errno", errno, now);
			return;
		}
		check->got += size > 0 ? (size_t)size : 0;
		if (check->kind == HTTP)
			read_http(check, now, size);
		else
			read_grpc(check, now, size);
	}
}

static unsigned char *from_hex(const char *text, size_t *size)
{
	size_t length = strcmp(text, "-") == 0 ? 0 : strlen(text) / 2;
	unsigned char *bytes = malloc(length + 1);
	unsigned value;
	*size = 0;
	for (; bytes && *size < length; ++*size) {
		if (sscanf(text + 2 * *size, "%2x", &value) != 1)
			break;
		bytes[*size] = (unsigned char)value;
	}
	return bytes;
}

/* Returns the size of the socket address that text and port tell, 0 for no address. */
static socklen_t read_address(union address *address, const char *text, const char *port)
{
	in_port_t number = htons((unsigned short)atoi(port));
	if (inet_pton(AF_INET, text, &address->ipv4.sin_addr) == 1) {
		address->ipv4.sin_family = AF_INET;
		address->ipv4.sin_port = number;
		return sizeof address->ipv4;
	}
	if (inet_pton(AF_INET6, text, &address->ipv6.sin6_addr) == 1) {
		address->ipv6.sin6_family = AF_INET6;
		address->ipv6.sin6_port = number;
		return sizeof address->ipv6;
	}
	return 0;
}

/* Returns the check a "+" line tells, NULL for one that cannot be read. */
static struct check *parse(char *line)
{
	char *word[12], *place = NULL;
	int words = 0;
	char *copy = strdup(line);
	struct check *check = calloc(1, sizeof *check);
	if (!copy || !check)
		goto bad;
	for (char *next = strtok_r(line, " ", &place); next && words < 12; next = strtok_r(NULL, " ", &place))
		word[words++] = next;
	if (words != 10 || !(check->address_size = read_address(&check->address, word[2], word[3])))
		goto bad;
	check->id = strdup(word[0]);
	check->kind = strcmp(word[1], "http") == 0 ? HTTP : strcmp(word[1], "grpc") == 0 ? GRPC : TCP;
	check->due_ms = now_ms() + atol(word[4]);
	check->period_ms = atol(word[5]) > 0 ? atol(word[5]) : 1;
	check->timeout_ms = atol(word[6]);
	check->success = atoi(word[7]);
	check->failure = atoi(word[8]);
	check->payload = from_hex(word[9], &check->payload_size);
	check->state = 'u';
	check->cause = "ok";
	check->good = -1;
	check->line = malloc(strlen(copy) + 1);
	if (!check->line || !check->id || !check->payload)
		goto bad;
	snprintf(check->line, strlen(copy) + 1, "%s %s %s %s %s %s %s %s %s", word[0], word[1], word[2], word[3],
		word[5], word[6], word[7], word[8], word[9]);
	free(copy);
	return check;
bad:
	free(copy);
	if (check)
		release(check);
	return NULL;
}

/* Puts the new table in the old one's place; a check that is in both goes on. */
static void commit(const char *name)
{
	for (int i = 0; i < coming_size; i++)
		for (int k = 0; k < table_size; k++)
			if (table[k] && strcmp(coming[i]->line, table[k]->line) == 0) {
				release(coming[i]);
				coming[i] = table[k];
				table[k] = NULL;
				break;
			}
	for (int k = 0; k < table_size; k++)
		if (table[k])
			release(table[k]);
	memcpy(table, coming, sizeof table);
	table_size = coming_size;
	coming_size = 0;
	snprintf(generation, sizeof generation, "%s", name);
	changed = 1;
}

static void take_line(char *line)
{
	if (line[0] == '+' && line[1] == ' ' && coming_size < MAX_CHECKS) {
		struct check *check = parse(line + 2);
		if (check)
			coming[coming_size++] = check;
	} else if (line[0] == '=' && line[1] == ' ') {
		commit(line + 2);
	}
}

/* Returns 0 when stdin has ended. */
static int take_input(void)
{
	ssize_t size = read(0, input + input_size, INPUT_MAX - input_size - 1);
	char *start = input, *end;
	if (size == 0)
		return 0;
	if (size < 0)
		return errno == EINTR || errno == EAGAIN;
	input_size += (size_t)size;
	input[input_size] = 0;
	while ((end = memchr(start, '\n', input_size - (size_t)(start - input)))) {
		*end = 0;
		take_line(start);
		start = end + 1;
	}
	input_size -= (size_t)(start - input);
	memmove(input, start, input_size);
	if (input_size == INPUT_MAX - 1) /* no line is that long */
		input_size = 0;
	return 1;
}

/* Writes the state when it has changed; a reader that is away holds nothing up, it gets the newest state later. */
static void tell(void)
{
	if (output_at == output_size && changed) {
		int size = snprintf(output, OUTPUT_MAX, "! %s", generation);
		for (int i = 0; i < table_size && size < OUTPUT_MAX - 256; i++)
			size += snprintf(output + size, OUTPUT_MAX - (size_t)size, " %s:%c:%d:%s:%d", table[i]->id, table[i]->state,
				table[i]->streak, table[i]->cause, table[i]->number);
		if (size > OUTPUT_MAX - 2)
			size = OUTPUT_MAX - 2;
		output[size++] = '\n';
		output_size = (size_t)size;
		output_at = 0;
		changed = 0;
	}
	if (output_at < output_size) {
		ssize_t size = write(1, output + output_at, output_size - output_at);
		if (size > 0)
			output_at += (size_t)size;
		else if (size < 0 && errno != EAGAIN && errno != EINTR)
			output_at = output_size;
	}
}

/* Returns after how many milliseconds something is due, -1 for never. */
static int prepare(struct pollfd *watched, long long now, int listening)
{
	long long next = output_at < output_size ? now + 100 : -1;
	watched[0] = (struct pollfd){listening ? 0 : -1, POLLIN, 0};
	for (int i = 0; i < table_size; i++) {
		struct check *check = table[i];
		long long due = check->phase == IDLE ? check->due_ms : check->began_ms + check->timeout_ms;
		short writing = check->phase == CONNECTING || check->sent < check->payload_size ? POLLOUT : 0;
		watched[i + 1] = (struct pollfd){check->phase == IDLE ? -1 : check->socket, (short)(POLLIN | writing), 0};
		if (next < 0 || due < next)
			next = due;
	}
	return next < 0 ? -1 : next <= now ? 0 : (int)(next - now);
}

static void probe(struct pollfd *watched, long long now)
{
	for (int i = 0; i < table_size; i++) {
		struct check *check = table[i];
		if (check->phase != IDLE && watched[i + 1].revents)
			go_on(check, watched[i + 1].revents, now);
		if (check->phase != IDLE && now - check->began_ms >= check->timeout_ms) {
			if (check->kind == HTTP && check->status >= 0)
				conclude_http(check, now);
			else
				conclude(check, 0, "timeout", 0, now);
		}
		if (check->phase == IDLE && now >= check->due_ms)
			begin(check, now);
	}
}

int main(void)
{
	static struct pollfd watched[MAX_CHECKS + 1];
	struct sigaction end = {.sa_handler = on_end}, child = {.sa_handler = on_child};
	sigset_t blocked, before;
	int listening = 1;
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGCHLD, &child, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&blocked);
	sigprocmask(SIG_SETMASK, &blocked, &before); /* signals come in ppoll only, so none is missed */
	fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
	while (!ended) {
		int wait_ms = prepare(watched, now_ms(), listening);
		struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
		int ready = ppoll(watched, (nfds_t)table_size + 1, wait_ms < 0 ? NULL : &wait, &before);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (ready < 0)
			for (int i = 0; i <= table_size; i++)
				watched[i].revents = 0;
		probe(watched, now_ms());
		if (ready > 0 && watched[0].revents)
			listening = take_input();
		tell();
	}
	return 0;
}
