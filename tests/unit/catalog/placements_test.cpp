//! Goal: groups and placements keep their contract alone. Method: direct calls.
#include <doctest/doctest.h>

#include "quack/catalog/placements.hpp"

using namespace quack;
using namespace quack::catalog;

namespace {

raft::Membership Voters(std::vector<raft::NodeId> voters) {
	raft::Membership membership;
	membership.voters = std::move(voters);
	return membership;
}

} // namespace

TEST_CASE("a group has one number for ever; without tables it is the next one that a new name gets") {
	Placements placements;
	std::vector<raft::GroupId> changed;
	auto provide = [&](const std::vector<std::string> &names, raft::LogIndex index) {
		changed.clear();
		return placements.Provide(names, index, Voters({1, 2, 3}), changed);
	};
	using Ids = std::vector<raft::GroupId>;
	auto place = [&](const std::string &table, raft::GroupId group) {
		Placement placement;
		placement.group = group;
		placements.Set(table, placement);
	};
	CHECK(provide({"root"}, 5) == Ids {raft::ROOT_GROUP});
	CHECK(placements.Groups().empty());
	CHECK(placements.CountMissing({"orders", "root", "other"}) == 2);
	CHECK(provide({"orders"}, 5) == Ids {2});
	CHECK(changed == Ids {2});
	place("orders", 2);
	auto version = placements.GroupsVersion();
	CHECK(provide({"orders"}, 9) == Ids {2});
	CHECK(changed.empty());
	CHECK(placements.GroupsVersion() == version);
	CHECK(placements.Find(2)->created == 5);
	CHECK(placements.NameOf(2) == "orders");
	CHECK(placements.NameOf(raft::ROOT_GROUP) == "root");
	CHECK(placements.NameOf(7) == "group-7");

	CHECK(provide({"lines"}, 10) == Ids {3});
	placements.Erase("orders");
	// One name is known, though without a table; the others get what is left, and only then a new one.
	CHECK(placements.CountMissing({"events", "lines", "items"}) == 1);
	CHECK(provide({"events", "lines", "items"}, 12) == Ids {2, 3, 4});
	CHECK(changed == Ids {2, 4});
	CHECK(placements.GroupsVersion() != version);
	CHECK(placements.NameOf(2) == "events");
	CHECK(placements.Find(2)->created == 5);
	CHECK(placements.FindByName("orders") == nullptr);
	CHECK(placements.FindByName("events")->id == 2);
	CHECK(placements.Find(4)->created == 12);
	place("events", 2);
	place("lines", 3);
	place("items", 4);
	CHECK(provide({"orders"}, 13) == Ids {5});
	CHECK(placements.NextId() == 6);
}

TEST_CASE("tables live in the root group until they are placed") {
	Placements placements;
	CHECK(placements.GroupsOf("app\0t") == std::vector<raft::GroupId>({raft::ROOT_GROUP}));
	Placement pinned;
	pinned.group = 4;
	placements.Set("t", pinned);
	Placement sharded;
	sharded.shard_key = {"a", "b"};
	sharded.groups = {7, 5, 7};
	placements.Set("s", sharded);
	CHECK(placements.GroupsOf("t") == std::vector<raft::GroupId>({4}));
	CHECK(placements.GroupsOf("s") == std::vector<raft::GroupId>({5, 7}));
	CHECK(sharded.GroupOfSlot(1) == 5);
	CHECK(sharded.GroupOfSlot(1023) == 7); // 1023 % 3 = 0
	placements.Rename("t", "u");
	CHECK(placements.Of("t") == nullptr);
	CHECK(placements.Of("u")->group == 4);
	placements.Rename("u", "u");
	CHECK(placements.Of("u") != nullptr);
	placements.Erase("u");
	CHECK(placements.Of("u") == nullptr);
}

TEST_CASE("placements and groups come back as they were written") {
	Placement sharded;
	sharded.shard_key = {"tenant_id", "x"};
	sharded.groups = {5, 6, 300};
	sharded.epoch = 70000;
	auto bytes = EncodePlacement(sharded);
	auto back = DecodePlacement(bytes);
	REQUIRE(back.IsOk());
	CHECK(back.Value().shard_key == sharded.shard_key);
	CHECK(back.Value().groups == sharded.groups);
	CHECK(back.Value().epoch == 70000);
	CHECK(back.Value().group == 0);
	for (size_t size = 0; size < bytes.size(); size++) {
		CHECK(DecodePlacement(ByteView(bytes).substr(0, size)).GetStatus().Code() == ErrorCode::Corruption);
	}
	GroupInfo info;
	info.id = 9;
	info.name = "orders";
	info.created = 12;
	info.membership = Voters({3, 4});
	auto group = DecodeGroupInfo(EncodeGroupInfo(info));
	REQUIRE(group.IsOk());
	CHECK(group.Value().name == "orders");
	CHECK(group.Value().membership == info.membership);
	CHECK(DecodeGroupInfo("x").GetStatus().Code() == ErrorCode::Corruption);
}

TEST_CASE("names of groups") {
	CHECK(CheckGroupName("orders-group").IsOk());
	CHECK(CheckGroupName("Gruppe eins").IsOk());
	CHECK(CheckGroupName("").Code() == ErrorCode::InvalidArgument);
	CHECK(CheckGroupName(std::string(65, 'x')).Code() == ErrorCode::InvalidArgument);
	CHECK(CheckGroupName("a\nb").Code() == ErrorCode::InvalidArgument);
	CHECK(ShardGroupName(3) == "shard-3");
}
