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

TEST_CASE("groups get numbers that are never used again") {
	Placements placements;
	CHECK(placements.Create("root", 5, Voters({1})) == raft::ROOT_GROUP);
	CHECK(placements.Groups().empty());
	auto orders = placements.Create("orders", 5, Voters({1, 2, 3}));
	CHECK(orders == 2);
	auto version = placements.GroupsVersion();
	CHECK(placements.Create("orders", 9, Voters({1})) == orders);
	CHECK(placements.GroupsVersion() == version);
	CHECK(placements.Find(orders)->created == 5);
	CHECK(placements.NameOf(orders) == "orders");
	CHECK(placements.NameOf(raft::ROOT_GROUP) == "root");
	placements.Retire(orders);
	CHECK(placements.GroupsVersion() != version);
	CHECK(placements.FindByName("orders") == nullptr);
	CHECK(placements.NameOf(orders) == "group-2");
	CHECK(placements.Create("orders", 12, Voters({1})) == 3);
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
	CHECK(placements.IsUsed(5));
	CHECK_FALSE(placements.IsUsed(6));
	placements.Rename("t", "u");
	CHECK(placements.Of("t") == nullptr);
	CHECK(placements.Of("u")->group == 4);
	placements.Rename("u", "u");
	CHECK(placements.Of("u") != nullptr);
	placements.Erase("u");
	CHECK_FALSE(placements.IsUsed(4));
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
