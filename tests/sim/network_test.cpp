//! The simulated network and clocks: faults come only as drawn, cuts hold in the direction they were made, and time
//! never goes back.
#include "sim/network.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace quack;
using namespace quack::sim;

namespace {

Settings QuietSettings() {
	Settings settings;
	settings.voter_count = 3;
	settings.delay_min = 10;
	settings.delay_max = 20;
	return settings;
}

raft::Message MakeMessage(raft::NodeId from, raft::NodeId to, uint64_t context) {
	raft::Message message;
	message.from = from;
	message.to = to;
	message.context = context;
	return message;
}

//! Contexts in the order of arrival.
std::vector<uint64_t> DeliverAll(EventQueue &queue, Network &network) {
	std::vector<uint64_t> contexts;
	while (!queue.Empty()) {
		SimEvent event = queue.Pop();
		raft::Message message;
		if (event.kind == EventKind::Deliver && network.Take(event.arg, message)) {
			contexts.push_back(message.context);
		}
	}
	return contexts;
}

} // namespace

TEST_CASE("a quiet network delivers everything once, in order when links keep it") {
	Settings settings = QuietSettings();
	settings.fifo_links = true;
	EventQueue queue;
	Network network(settings, queue);
	std::vector<uint64_t> sent;
	for (uint64_t context = 1; context <= 100; context++) {
		network.Send(MakeMessage(1, 2, context), 1);
		sent.push_back(context);
	}
	CHECK(DeliverAll(queue, network) == sent);
}

TEST_CASE("loss, duplication and reordering happen when drawn, and equally for equal seeds") {
	auto run = [](uint64_t seed) {
		Settings settings = QuietSettings();
		settings.seed = seed;
		settings.loss_permille = 200;
		settings.duplicate_permille = 200;
		EventQueue queue;
		Network network(settings, queue);
		for (uint64_t context = 1; context <= 200; context++) {
			network.Send(MakeMessage(1, 2, context), 1);
		}
		return DeliverAll(queue, network);
	};
	auto first = run(1);
	CHECK(first == run(1));
	CHECK(first != run(2));
	CHECK(std::is_sorted(first.begin(), first.end()) == false);
	std::vector<uint64_t> distinct = first;
	std::sort(distinct.begin(), distinct.end());
	distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
	CHECK(distinct.size() < 200);
	CHECK(distinct.size() < first.size());
}

TEST_CASE("a cut drops what is sent and what is under way, and heals") {
	Settings settings = QuietSettings();
	EventQueue queue;
	Network network(settings, queue);
	network.Send(MakeMessage(1, 2, 1), 1);
	network.Isolate(0);
	network.Send(MakeMessage(1, 2, 2), 1);
	network.Send(MakeMessage(3, 2, 3), 1);
	CHECK(DeliverAll(queue, network) == std::vector<uint64_t> {3});
	network.HealPartition();
	network.Send(MakeMessage(1, 2, 4), 1);
	CHECK(DeliverAll(queue, network) == std::vector<uint64_t> {4});
}

TEST_CASE("one-way cuts occur: some pair can speak in one direction only") {
	Settings settings = QuietSettings();
	settings.one_way_partitions = true;
	EventQueue queue;
	Network network(settings, queue);
	bool one_way = false;
	for (int round = 0; round < 100 && !one_way; round++) {
		network.Partition(3);
		for (uint32_t a = 0; a < 3; a++) {
			for (uint32_t b = 0; b < 3; b++) {
				one_way = one_way || network.IsOpen(a, b) != network.IsOpen(b, a);
			}
		}
	}
	CHECK(one_way);
}

TEST_CASE("a drifting clock never goes back and stays within its rate") {
	NodeClock clock;
	clock.Reset(1000, 5 * NS_PER_SECOND, 20000);
	CHECK(clock.Local(1000) == 5 * NS_PER_SECOND);
	CHECK(clock.Local(1000 + NS_PER_SECOND) == 5 * NS_PER_SECOND + NS_PER_SECOND * 102 / 100);
	MonotonicNs before = clock.Local(1000 + NS_PER_SECOND);
	clock.SetRate(1000 + NS_PER_SECOND, -20000);
	CHECK(clock.Local(1000 + NS_PER_SECOND) == before);
	CHECK(clock.Local(1000 + 2 * NS_PER_SECOND) == before + NS_PER_SECOND * 98 / 100);
}

TEST_CASE("waiting until a local time ends at the first moment that shows it") {
	for (int32_t rate : {-25000, -1, 0, 1, 25000}) {
		NodeClock clock;
		clock.Reset(0, 77, rate);
		MonotonicNs target = 77 + 3 * NS_PER_SECOND + 123;
		MonotonicNs delay = clock.DelayUntil(0, target);
		CHECK(clock.Local(delay) >= target);
		CHECK(clock.Local(delay - NS_PER_MS) < target);
		CHECK(clock.DelayUntil(delay, target) == 0);
	}
}

TEST_CASE("events come in order of time, then of insertion; a deferred event keeps its content") {
	EventQueue queue;
	queue.Push(5, EventKind::Tick, 1, 0, 1);
	queue.Push(3, EventKind::Tick, 2, 0, 2);
	queue.Push(3, EventKind::Tick, 3, 0, 3);
	SimEvent first = queue.Pop();
	CHECK(first.arg == 2);
	queue.Defer(first, 9);
	CHECK(queue.Pop().arg == 3);
	CHECK(queue.Pop().arg == 1);
	SimEvent last = queue.Pop();
	CHECK(last.arg == 2);
	CHECK(last.node == 2);
	CHECK(queue.Now() == 9);
}
