#include "quack/sql/data_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>

#include "yyjson.hpp"

namespace quack {
namespace sql {

namespace json = duckdb_yyjson;

namespace {

constexpr uint64_t IDENTITY_FORMAT = 2;
constexpr size_t SMALL_FILE_MAX = 64 * 1024;
constexpr size_t VERDICT_BYTES = 4096;
//! Earlier disks of one node that are remembered.
constexpr size_t REPLACES_MAX = 16;

Status Failure(const std::string &what, const std::string &path) {
	return Status(ErrorCode::IoError, what + " '" + path + "': " + std::generic_category().message(errno));
}

Status MakeDirectory(const std::string &path) {
	for (size_t end = 1; end <= path.size(); end++) {
		if (end != path.size() && path[end] != '/') {
			continue;
		}
		auto part = path.substr(0, end);
		if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
			return Failure("data_dir: cannot create the directory", part);
		}
	}
	struct stat info {};
	if (stat(path.c_str(), &info) != 0) {
		return Failure("data_dir: cannot read", path);
	}
	if (!S_ISDIR(info.st_mode)) {
		return Status(ErrorCode::IoError, "data_dir: '" + path + "' is a file; a directory was expected");
	}
	if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
		return Failure("data_dir: cannot read and write in", path);
	}
	return Status::Ok();
}

std::string ReadSmall(int file) {
	std::string text(SMALL_FILE_MAX, '\0');
	auto size = pread(file, text.data(), text.size(), 0);
	text.resize(size > 0 ? static_cast<size_t>(size) : 0);
	return text;
}

Status WriteSmall(int file, const std::string &path, const std::string &text) {
	if (ftruncate(file, 0) != 0 || pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
		return Failure("cannot write", path);
	}
	return Status::Ok();
}

Status SyncFolder(const std::string &path) {
	auto folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto is_synced = folder >= 0 && fsync(folder) == 0;
	auto status = is_synced ? Status::Ok() : Failure("cannot sync", path);
	if (folder >= 0) {
		close(folder);
	}
	return status;
}

//! Whole and durable or not at all.
Status Replace(const std::string &directory, const std::string &path, const std::string &text) {
	auto temporary = path + ".new";
	auto file = open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0) {
		return Failure("cannot create", temporary);
	}
	auto status = WriteSmall(file, temporary, text);
	if (status.IsOk() && fsync(file) != 0) {
		status = Failure("cannot sync", temporary);
	}
	close(file);
	if (status.IsOk() && rename(temporary.c_str(), path.c_str()) != 0) {
		status = Failure("cannot rename to", path);
	}
	return status.IsOk() ? SyncFolder(directory) : status;
}

std::string Member(json::yyjson_val *root, const char *key) {
	auto *value = json::yyjson_obj_get(root, key);
	return json::yyjson_is_str(value) ? std::string(json::yyjson_get_str(value), json::yyjson_get_len(value))
	                                  : std::string();
}

std::string Hex(uint64_t value) {
	char text[17];
	std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
	return text;
}

//! 0 when it is not 16 hex digits.
uint64_t ParseHex(const std::string &text) {
	if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
		return 0;
	}
	return std::strtoull(text.c_str(), nullptr, 16);
}

Result<uint64_t> DrawIncarnation() {
	uint64_t value = 0;
	while (value == 0) {
		if (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value)) && errno != EINTR) {
			return Failure("data_dir: no random number for", "identity.json");
		}
	}
	return value;
}

//! As it sorts and as a file name may be.
std::string UtcName() {
	auto seconds = time(nullptr);
	struct tm parts {};
	gmtime_r(&seconds, &parts);
	char text[32];
	std::strftime(text, sizeof(text), "%Y-%m-%dT%H-%M-%SZ", &parts);
	return text;
}

bool Exists(const std::string &path) {
	struct stat info {};
	return lstat(path.c_str(), &info) == 0;
}

//! Once: a target that is there was moved before a crash.
Status MoveOnce(const std::string &from, const std::string &to) {
	if (Exists(to) || !Exists(from)) {
		return Status::Ok();
	}
	return rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : Failure("cannot move to", to);
}

std::string Readme(const std::string &node, DataDirectory::Damage damage, const std::string &what, uint64_t old_disk,
                   uint64_t new_disk) {
	auto is_log = damage == DataDirectory::Damage::Log;
	std::string text = "# Files that node '" + node + "' moved aside\n\n" + what + "\n\n";
	text += is_log ? "The log held the node's votes and the entries it had acknowledged. Part of them is lost, so the "
	                 "node must not go on with the rest: it could vote twice in a term, or elect a leader without a "
	                 "committed entry. log/ and catalog/ were moved here whole.\n\n"
	               : "The log was sound, so the node kept its identity, its votes and its log. catalog/ was moved here "
	                 "whole.\n\n";
	if (old_disk != new_disk) {
		text += "The node goes on with an empty disk " + Hex(new_disk) +
		        ", as another member: it gets the data from "
		        "its peers, and the leader gives it the place of disk " +
		        Hex(old_disk) + ".\n\n";
	} else {
		text += "The node gets the data from its log or from its peers.\n\n";
	}
	text += "Nothing here is read by the node. Remove this directory when the node is well again (quack cluster "
	        "status) and nobody wants to look into what happened";
	text += is_log ? " (quack log verify " : "";
	return text + (is_log ? "log, from here).\n" : ".\n");
}

} // namespace

Result<int> DataDirectory::Lock(const std::string &path) {
	auto file_path = path + "/LOCK";
	auto file = open(file_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0) {
		return Failure("data_dir: cannot open", file_path);
	}
	if (flock(file, LOCK_EX | LOCK_NB) != 0) {
		auto owner = ReadSmall(file);
		while (!owner.empty() && owner.back() == '\n') {
			owner.pop_back();
		}
		close(file);
		return Status(ErrorCode::Unavailable, "data_dir '" + path + "' is in use by process " +
		                                          (owner.empty() ? "(unknown)" : owner) +
		                                          "; stop that process or give this node a directory of its own");
	}
	auto status = WriteSmall(file, file_path, std::to_string(getpid()) + "\n");
	if (!status.IsOk()) {
		close(file);
		return status;
	}
	return file;
}

Result<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string &path_p, const std::string &cluster_id,
                                                           const std::string &node_id) {
	auto path = path_p;
	while (path.size() > 1 && path.back() == '/') {
		path.pop_back();
	}
	auto status = MakeDirectory(path);
	if (!status.IsOk()) {
		return status;
	}
	auto lock = Lock(path);
	if (!lock.IsOk()) {
		return lock.GetStatus();
	}
	std::unique_ptr<DataDirectory> directory(new DataDirectory(path, lock.Value()));
	status = directory->OpenIdentity(cluster_id, node_id);
	if (status.IsOk() && !directory->moving_to.empty()) {
		status = directory->FinishQuarantine();
	}
	status = status.IsOk() ? directory->OpenVerdict() : status;
	status = status.IsOk() ? directory->ReadRestored() : status;
	for (auto &part : {directory->LogPath(), directory->CatalogPath(), directory->IncomingPath()}) {
		if (status.IsOk()) {
			status = MakeDirectory(part);
		}
	}
	if (!status.IsOk()) {
		return status;
	}
	return directory;
}

DataDirectory::~DataDirectory() {
	if (verdict_file >= 0) {
		close(verdict_file);
	}
	close(lock_file);
}

bool DataDirectory::IsFormed() const {
	std::lock_guard<std::mutex> guard(lock);
	return is_formed;
}

Status DataDirectory::MarkFormed() {
	std::lock_guard<std::mutex> guard(lock);
	if (is_formed) {
		return Status::Ok();
	}
	is_formed = true;
	met.clear();
	return WriteIdentity();
}

Status DataDirectory::Distrust(const std::string &why) {
	std::lock_guard<std::mutex> guard(lock);
	distrusted = why;
	auto in_place = WriteVerdict(why);
	auto replaced = WriteIdentity();
	if (in_place.IsOk() || replaced.IsOk()) {
		return Status::Ok();
	}
	return Status(replaced.Code(), replaced.Message() + "; " + in_place.Message());
}

//! Reads what an earlier process could write down nowhere else.
Status DataDirectory::OpenVerdict() {
	auto file_path = path + "/verdict";
	auto is_new = !Exists(file_path);
	verdict_file = open(file_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (verdict_file < 0) {
		return Failure("data_dir: cannot open", file_path);
	}
	std::lock_guard<std::mutex> guard(lock);
	auto text = ReadSmall(verdict_file);
	if (is_new || text.size() != VERDICT_BYTES) {
		auto status = WriteVerdict("");
		return status.IsOk() ? SyncFolder(path) : status;
	}
	auto space = text.find(' ');
	auto why = space == std::string::npos ? std::string() : text.substr(space + 1);
	why.erase(why.find_last_not_of(" \n") + 1);
	if (distrusted.empty() && !why.empty() && text.substr(0, space) == Hex(catalog_number)) {
		distrusted = why;
	}
	return Status::Ok();
}

//! With the lock held. One block, always of the same size.
Status DataDirectory::WriteVerdict(const std::string &why) const {
	auto text = (Hex(catalog_number) + " " + why).substr(0, VERDICT_BYTES - 1);
	text.resize(VERDICT_BYTES - 1, ' ');
	text += '\n';
	auto size = pwrite(verdict_file, text.data(), text.size(), 0);
	auto is_durable = size == static_cast<ssize_t>(text.size()) && fdatasync(verdict_file) == 0;
	return is_durable ? Status::Ok() : Failure("cannot write", path + "/verdict");
}

std::string DataDirectory::Distrusted() const {
	std::lock_guard<std::mutex> guard(lock);
	return distrusted;
}

Status DataDirectory::AskReseed(const std::string &why) {
	std::lock_guard<std::mutex> guard(lock);
	auto before = std::move(reseed_asked);
	reseed_asked = why;
	auto status = WriteIdentity();
	if (!status.IsOk()) {
		reseed_asked = std::move(before); // or a later write would make durable what the caller heard had failed
	}
	return status;
}

std::string DataDirectory::ReseedAsked() const {
	std::lock_guard<std::mutex> guard(lock);
	return reseed_asked;
}

std::map<std::string, uint64_t> DataDirectory::Met() const {
	std::lock_guard<std::mutex> guard(lock);
	return met;
}

Status DataDirectory::SaveMet(const std::map<std::string, uint64_t> &met_p) {
	std::lock_guard<std::mutex> guard(lock);
	met = met_p;
	return WriteIdentity();
}

std::vector<uint64_t> DataDirectory::Replaces() const {
	return replaces;
}

Result<std::string> DataDirectory::Quarantine(Damage damage, const std::string &what) {
	auto name = UtcName();
	for (int again = 2; Exists(QuarantinePath() + "/" + name); again++) {
		name = UtcName() + "-" + std::to_string(again);
	}
	auto target = QuarantinePath() + "/" + name;
	auto drawn = DrawIncarnation();
	auto status = drawn.IsOk() ? MakeDirectory(target) : drawn.GetStatus();
	{
		std::lock_guard<std::mutex> guard(lock);
		// A disk that never took part gave no vote away: it may keep its name.
		auto is_new_disk = damage == Damage::Log && is_formed;
		auto next = status.IsOk() && is_new_disk ? drawn.Value() : incarnation;
		status = status.IsOk() ? Replace(target, target + "/README.md", Readme(node, damage, what, incarnation, next))
		                       : status;
		status = status.IsOk() ? SyncFolder(QuarantinePath()) : status;
		status = status.IsOk() ? SyncFolder(path) : status;
		if (!status.IsOk()) {
			return status;
		}
		if (is_new_disk) {
			replaces.push_back(incarnation);
			if (replaces.size() > REPLACES_MAX) {
				replaces.erase(replaces.begin());
			}
			incarnation = next;
			is_formed = false;
			met.clear();
		}
		moving_to = name;
		is_log_moving = damage == Damage::Log;
		status = WriteIdentity();
	}
	status = status.IsOk() ? FinishQuarantine() : status;
	return status.IsOk() ? Result<std::string>(target) : Result<std::string>(status);
}

Status DataDirectory::FinishQuarantine() {
	auto target = QuarantinePath() + "/" + moving_to;
	auto status = MakeDirectory(target);
	status = status.IsOk() && is_log_moving ? MoveOnce(LogPath(), target + "/log") : status;
	status = status.IsOk() ? MoveOnce(CatalogPath(), target + "/catalog") : status;
	status = status.IsOk() ? SyncFolder(target) : status;
	status = status.IsOk() ? SyncFolder(path) : status;
	for (auto &part : {LogPath(), CatalogPath()}) {
		status = status.IsOk() ? MakeDirectory(part) : status;
	}
	if (!status.IsOk()) {
		return status;
	}
	std::lock_guard<std::mutex> guard(lock);
	moving_to.clear();
	distrusted.clear();
	reseed_asked.clear();
	catalog_number++; // the verdict in the other file is about the one before
	return WriteIdentity();
}

Status DataDirectory::WriteIdentity() const {
	auto *document = json::yyjson_mut_doc_new(nullptr);
	auto *root = json::yyjson_mut_obj(document);
	json::yyjson_mut_doc_set_root(document, root);
	json::yyjson_mut_obj_add_uint(document, root, "format", IDENTITY_FORMAT);
	json::yyjson_mut_obj_add_strcpy(document, root, "cluster_id", cluster.c_str());
	json::yyjson_mut_obj_add_strcpy(document, root, "node_id", node.c_str());
	json::yyjson_mut_obj_add_strcpy(document, root, "incarnation", Hex(incarnation).c_str());
	json::yyjson_mut_obj_add_bool(document, root, "formed", is_formed);
	auto *lost = json::yyjson_mut_obj_add_arr(document, root, "replaces");
	for (auto disk : replaces) {
		json::yyjson_mut_arr_add_strcpy(document, lost, Hex(disk).c_str());
	}
	json::yyjson_mut_obj_add_uint(document, root, "catalog_number", catalog_number);
	if (!distrusted.empty()) {
		json::yyjson_mut_obj_add_strcpy(document, root, "distrusted", distrusted.c_str());
	}
	if (!reseed_asked.empty()) {
		json::yyjson_mut_obj_add_strcpy(document, root, "reseed_asked", reseed_asked.c_str());
	}
	if (!moving_to.empty()) {
		json::yyjson_mut_obj_add_strcpy(document, root, "moving_to", moving_to.c_str());
		json::yyjson_mut_obj_add_bool(document, root, "moving_log", is_log_moving);
	}
	auto *others = json::yyjson_mut_obj_add_obj(document, root, "met");
	for (auto &entry : met) {
		json::yyjson_mut_obj_add(others, json::yyjson_mut_strcpy(document, entry.first.c_str()),
		                         json::yyjson_mut_strcpy(document, Hex(entry.second).c_str()));
	}
	size_t size = 0;
	auto *text = json::yyjson_mut_write(document, json::YYJSON_WRITE_PRETTY, &size);
	std::string result(text, size);
	free(text); // NOLINT: allocated by yyjson with malloc
	json::yyjson_mut_doc_free(document);
	return Replace(path, path + "/identity.json", result + "\n");
}

Status DataDirectory::ReadIdentity(const std::string &file_path, const std::string &text) {
	auto *document = json::yyjson_read(text.data(), text.size(), json::YYJSON_READ_NOFLAG);
	if (document == nullptr) {
		return Status(ErrorCode::Corruption,
		              "'" + file_path + "' is no JSON; restore it from a copy of this node's directory");
	}
	auto *root = json::yyjson_doc_get_root(document);
	cluster = Member(root, "cluster_id");
	node = Member(root, "node_id");
	incarnation = ParseHex(Member(root, "incarnation"));
	is_formed = json::yyjson_get_bool(json::yyjson_obj_get(root, "formed"));
	size_t index;
	size_t count;
	json::yyjson_val *key;
	json::yyjson_val *value;
	auto *others = json::yyjson_obj_get(root, "met");
	yyjson_obj_foreach(others, index, count, key, value) {
		met[json::yyjson_get_str(key)] = json::yyjson_is_str(value) ? ParseHex(json::yyjson_get_str(value)) : 0;
	}
	auto *lost = json::yyjson_obj_get(root, "replaces");
	yyjson_arr_foreach(lost, index, count, value) {
		replaces.push_back(json::yyjson_is_str(value) ? ParseHex(json::yyjson_get_str(value)) : 0);
	}
	catalog_number = json::yyjson_get_uint(json::yyjson_obj_get(root, "catalog_number"));
	distrusted = Member(root, "distrusted");
	reseed_asked = Member(root, "reseed_asked");
	moving_to = Member(root, "moving_to");
	is_log_moving = json::yyjson_get_bool(json::yyjson_obj_get(root, "moving_log"));
	auto format = json::yyjson_get_uint(json::yyjson_obj_get(root, "format"));
	json::yyjson_doc_free(document);
	if (format != IDENTITY_FORMAT || incarnation == 0) {
		return Status(ErrorCode::Incompatible, "'" + file_path + "' has format " + std::to_string(format) +
		                                           ", this release reads format " + std::to_string(IDENTITY_FORMAT) +
		                                           ": start the node with the release that wrote it, or give it an "
		                                           "empty data_dir and let it join again");
	}
	return Status::Ok();
}

Status DataDirectory::ReadRestored() {
	auto file_path = path + "/restored.json";
	auto file = open(file_path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return errno == ENOENT ? Status::Ok() : Failure("data_dir: cannot open", file_path);
	}
	auto text = ReadSmall(file);
	close(file);
	auto *document = json::yyjson_read(text.data(), text.size(), json::YYJSON_READ_NOFLAG);
	auto *root = json::yyjson_doc_get_root(document);
	restored_from = Member(root, "backup_id");
	restored_index = json::yyjson_get_uint(json::yyjson_obj_get(root, "index"));
	json::yyjson_doc_free(document);
	if (restored_from.empty() || restored_index == 0) {
		return Status(ErrorCode::Corruption, "'" + file_path + "' names no backup_id and index: empty data_dir '" +
		                                         path + "' and run quack restore again");
	}
	return Status::Ok();
}

Status DataDirectory::OpenIdentity(const std::string &cluster_id, const std::string &node_id) {
	auto file_path = path + "/identity.json";
	auto file = open(file_path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0 && errno == ENOENT) {
		auto drawn = DrawIncarnation();
		if (!drawn.IsOk()) {
			return drawn.GetStatus();
		}
		incarnation = drawn.Value();
		cluster = cluster_id;
		node = node_id;
		return WriteIdentity();
	}
	if (file < 0) {
		return Failure("data_dir: cannot open", file_path);
	}
	auto text = ReadSmall(file);
	close(file);
	auto status = ReadIdentity(file_path, text);
	if (!status.IsOk()) {
		return status;
	}
	if (cluster != cluster_id) {
		return Status(ErrorCode::Incompatible, "data_dir '" + path + "' belongs to cluster '" + cluster +
		                                           "', this node is configured for cluster '" + cluster_id +
		                                           "'; give it another data_dir or mend cluster_id");
	}
	if (node != node_id) {
		return Status(ErrorCode::Incompatible, "data_dir '" + path + "' belongs to node '" + node +
		                                           "', this node is '" + node_id +
		                                           "'; give it another data_dir or mend the node id");
	}
	return Status::Ok();
}

} // namespace sql
} // namespace quack
