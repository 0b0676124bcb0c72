// A client on the C++ library that counts the messages of the server in examples/lap. README.md says how to build it.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <unistd.h>
#include "denConnection.h"
#include "message/denMessageReader.h"
#include "state/denState.h"

static double now() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct Client : denConnection {
	long long next = 0, got = 0, stale = 0, doubled = 0, missed = 0;
	int connections = 0;
	bool end = false;

	void ConnectionEstablished() override { connections++; }
	void ConnectionFailed(ConnectionFailedReason) override { end = true; }
	void ConnectionClosed() override { printf("closed after %lld messages\n", got); }
	denState::Ref CreateState(const denMessage::Ref &, bool) override { return nullptr; }
	void MessageReceived(const denMessage::Ref &m) override {
		if (m->Item().GetLength() != 8) return;
		long long n;
		memcpy(&n, m->Item().GetData().c_str(), 8);
		got++;
		if (n == next) {
			next++;
		} else if (n > next) {
			missed += n - next;
			next = n + 1;
		} else if (next - n > 30000) {
			stale++;
		} else {
			doubled++;
		}
	}
};

int main(int argc, char **argv) {
	if (argc != 2) return 2;
	auto c = std::make_shared<Client>();
	c->ConnectTo(argv[1]);
	for (double last = now(); !c->end;) {
		usleep(100);
		const double t = now();
		c->Update((float)(t - last));
		last = t;
		if (c->GetConnectionState() == denConnection::ConnectionState::disconnected && !c->end) c->ConnectTo(argv[1]);
	}
	printf("%lld messages over %d connections: %lld stale, %lld missed, %lld doubled\n", c->got, c->connections, c->stale, c->missed, c->doubled);
	fflush(stdout);
	_exit(0);
}
