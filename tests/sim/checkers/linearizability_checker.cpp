#include "sim/checkers/linearizability_checker.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "sim/trace.hpp"

namespace quack {
namespace sim {

namespace {

//! Set of operations already placed, and the register's value after them.
struct Configuration {
	std::vector<uint64_t> placed;
	uint32_t value = 0;

	bool operator==(const Configuration &other) const {
		return value == other.value && placed == other.placed;
	}
};

struct ConfigurationHash {
	size_t operator()(const Configuration &configuration) const {
		uint64_t hash = configuration.value;
		for (auto word : configuration.placed) {
			hash = Mix(hash, word);
		}
		return hash;
	}
};

//! A pending operation whose value nobody saw needs no place: leaving it out of a valid order keeps the order valid,
//! because every completed operation reports the value that it found.
void DropUnseenPending(std::vector<HistoryOp> &history) {
	std::unordered_set<uint32_t> seen;
	for (const auto &op : history) {
		if (op.complete != HistoryOp::PENDING) {
			seen.insert(op.observed);
		}
	}
	// A pending compare-and-set that was seen itself proves that its expected value was there.
	for (bool grown = true; grown;) {
		grown = false;
		for (const auto &op : history) {
			bool took_effect = op.complete == HistoryOp::PENDING && op.kind == OpKind::Cas && seen.count(op.value) != 0;
			grown = (took_effect && seen.insert(op.expected).second) || grown;
		}
	}
	auto unseen = [&](const HistoryOp &op) {
		return op.complete == HistoryOp::PENDING && (op.kind == OpKind::Read || seen.count(op.value) == 0);
	};
	history.erase(std::remove_if(history.begin(), history.end(), unseen), history.end());
}

std::string Describe(const HistoryOp &op) {
	static const char *const names[] = {"read", "write", "cas"};
	std::string text = std::string(names[static_cast<size_t>(op.kind)]) + " op " + std::to_string(op.op);
	if (op.kind == OpKind::Cas) {
		text += " " + std::to_string(op.expected) + "->" + std::to_string(op.value);
	} else if (op.kind == OpKind::Write) {
		text += " " + std::to_string(op.value);
	}
	if (op.complete != HistoryOp::PENDING) {
		text += " saw " + std::to_string(op.observed);
	}
	return text + " in [" + std::to_string(op.invoke) + ", " +
	       (op.complete == HistoryOp::PENDING ? "pending" : std::to_string(op.complete)) + "]";
}

//! The search. Call and return points form a doubly linked list in time order; placing an operation lifts its two
//! points out, backtracking puts them in again.
class Search {
public:
	explicit Search(std::vector<HistoryOp> history_p) : history(std::move(history_p)), points(history.size() * 2 + 1) {
		struct Point {
			uint64_t time;
			size_t index;
		};
		std::vector<Point> order;
		for (size_t i = 0; i < history.size(); i++) {
			order.push_back({history[i].invoke, CallOf(i)});
			order.push_back({history[i].complete, ReturnOf(i)});
			if (history[i].complete != HistoryOp::PENDING) {
				waiting[history[i].observed]++;
			}
		}
		std::stable_sort(order.begin(), order.end(), [](const Point &a, const Point &b) { return a.time < b.time; });
		size_t previous = HEAD;
		for (const auto &point : order) {
			points[previous].next = point.index;
			points[point.index].previous = previous;
			previous = point.index;
		}
		points[previous].next = HEAD;
		points[HEAD].previous = previous;
		current.placed.resize((history.size() + 63) / 64, 0);
	}

	LinearizabilityResult Run(uint64_t iterations_max) {
		LinearizabilityResult result;
		size_t best_depth = 0;
		size_t at = points[HEAD].next;
		while (points[HEAD].next != HEAD) {
			if (++result.iterations > iterations_max) {
				result.verdict = Verdict::Unknown;
				return result;
			}
			bool dead_end = !IsCall(at);
			if (IsCall(at)) {
				size_t op = OpOf(at);
				uint32_t after = 0;
				bool allowed = Allows(history[op], after);
				bool harmless = allowed && after == current.value && history[op].complete != HistoryOp::PENDING;
				if (allowed && Enter(op, after, harmless)) {
					at = points[HEAD].next;
					continue;
				}
				dead_end = harmless;
				at = dead_end ? at : points[at].next;
			} else if (history[OpOf(at)].complete == HistoryOp::PENDING) {
				return result;
			} else if (stack.size() >= best_depth) {
				// The return of an operation that found no place: something placed before it is wrong.
				best_depth = stack.size();
				result.explanation = Describe(history[OpOf(at)]) + " has no place when the register holds " +
				                     std::to_string(current.value);
			}
			if (dead_end && !BackTrack(at)) {
				result.verdict = Verdict::NotLinearizable;
				return result;
			}
		}
		return result;
	}

private:
	struct Link {
		size_t previous = 0;
		size_t next = 0;
	};
	struct Placed {
		size_t op;
		uint32_t value_before;
		//! It changes nothing and may come now: then it may as well, and no other choice needs a try.
		bool harmless;
	};

	static constexpr size_t HEAD = 0;
	static size_t CallOf(size_t op) {
		return 1 + 2 * op;
	}
	static size_t ReturnOf(size_t op) {
		return 2 + 2 * op;
	}
	static bool IsCall(size_t point) {
		return point % 2 == 1;
	}
	static size_t OpOf(size_t point) {
		return (point - 1) / 2;
	}

	//! Whether `op` may come next, and the value after it.
	bool Allows(const HistoryOp &op, uint32_t &after) const {
		bool changes = op.kind == OpKind::Write || (op.kind == OpKind::Cas && current.value == op.expected);
		after = changes ? op.value : current.value;
		bool pending = op.complete == HistoryOp::PENDING;
		if (!pending && op.observed != current.value) {
			return false;
		}
		// Values are unique: once replaced, this one never comes back for those that still have to find it.
		size_t others = Waiting(current.value) - (pending ? 0 : 1);
		return !changes || others == 0;
	}

	//! Completed operations without a place that found `value`.
	size_t Waiting(uint32_t value) const {
		auto found = waiting.find(value);
		return found == waiting.end() ? 0 : found->second;
	}

	//! False when this configuration was reached before.
	bool Enter(size_t op, uint32_t after, bool harmless) {
		Configuration next = current;
		next.placed[op / 64] |= 1ULL << op % 64;
		next.value = after;
		if (!visited.insert(next).second) {
			return false;
		}
		stack.push_back({op, current.value, harmless});
		if (history[op].complete != HistoryOp::PENDING) {
			waiting[history[op].observed]--;
		}
		current = std::move(next);
		Unlink(CallOf(op));
		Unlink(ReturnOf(op));
		return true;
	}

	//! Takes operations back up to the last that was a choice, and goes on behind it. False when there was none.
	bool BackTrack(size_t &at) {
		while (!stack.empty()) {
			Placed last = stack.back();
			stack.pop_back();
			current.placed[last.op / 64] &= ~(1ULL << last.op % 64);
			current.value = last.value_before;
			if (history[last.op].complete != HistoryOp::PENDING) {
				waiting[history[last.op].observed]++;
			}
			Relink(ReturnOf(last.op));
			Relink(CallOf(last.op));
			if (!last.harmless) {
				at = points[CallOf(last.op)].next;
				return true;
			}
		}
		return false;
	}

	void Unlink(size_t point) {
		points[points[point].previous].next = points[point].next;
		points[points[point].next].previous = points[point].previous;
	}
	void Relink(size_t point) {
		points[points[point].previous].next = point;
		points[points[point].next].previous = point;
	}

	std::vector<HistoryOp> history;
	//! points[HEAD] closes the ring.
	std::vector<Link> points;
	std::vector<Placed> stack;
	Configuration current;
	//! How many completed operations without a place found each value.
	std::unordered_map<uint32_t, size_t> waiting;
	std::unordered_set<Configuration, ConfigurationHash> visited;
};

} // namespace

LinearizabilityResult CheckLinearizability(std::vector<HistoryOp> history, uint64_t iterations_max) {
	DropUnseenPending(history);
	return Search(std::move(history)).Run(iterations_max);
}

} // namespace sim
} // namespace quack
