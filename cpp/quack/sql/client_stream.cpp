#include "quack/sql/client_stream.hpp"

#include <chrono>

#include "duckdb/common/exception.hpp"
#include "duckdb/common/exception/binder_exception.hpp"
#include "duckdb/function/table_function.hpp"
#include "quack/sql/session.hpp"
#include "quack/sql/sql_error.hpp"

namespace quack {
namespace sql {

using duckdb::DataChunk;
using duckdb::InvalidInputException;

namespace {

constexpr auto ROOM_POLL_INTERVAL = std::chrono::milliseconds(20);

//! Scans take at most one vector at a time.
void SplitIntoVectors(duckdb::unique_ptr<DataChunk> chunk, std::vector<duckdb::unique_ptr<DataChunk>> &out) {
	if (chunk->size() == 0) {
		return;
	}
	if (chunk->size() <= STANDARD_VECTOR_SIZE) {
		out.push_back(std::move(chunk));
		return;
	}
	auto size = chunk->size();
	for (duckdb::idx_t offset = 0; offset < size; offset += STANDARD_VECTOR_SIZE) {
		auto count = std::min<duckdb::idx_t>(STANDARD_VECTOR_SIZE, size - offset);
		duckdb::SelectionVector selection(count);
		for (duckdb::idx_t i = 0; i < count; i++) {
			selection.set_index(i, offset + i);
		}
		auto part = duckdb::make_uniq<DataChunk>();
		part->Initialize(duckdb::Allocator::DefaultAllocator(), chunk->GetTypes());
		part->Append(*chunk, selection, count);
		out.push_back(std::move(part));
	}
}

} // namespace

ClientStream::ClientStream(std::string id_p, duckdb::vector<duckdb::LogicalType> types_p, bool ordered_p,
                           size_t buffer_bytes_max_p, Admission &admission_p)
    : id(std::move(id_p)), types(std::move(types_p)), ordered(ordered_p), buffer_bytes_max(buffer_bytes_max_p),
      admission(admission_p) {
}

ClientStream::~ClientStream() {
	RemoveBytesLocked(buffered_bytes);
}

void ClientStream::RemoveBytesLocked(size_t bytes) {
	buffered_bytes -= bytes;
	admission.RemoveBytes(bytes);
}

bool ClientStream::HasRoomLocked(uint64_t batch_index, size_t bytes) const {
	// The batch that the scan waits for is always taken, else an ordered stream could lock itself up.
	if (buffered_bytes == 0 || batch_index == received_up_to + 1) {
		return true;
	}
	return buffered_bytes + bytes <= buffer_bytes_max && !admission.IsOverBytes();
}

bool ClientStream::IsKnownLocked(uint64_t batch_index) const {
	return batch_index <= received_up_to || received.count(batch_index) != 0;
}

void ClientStream::CheckTypes(const SendDataRequest &request) const {
	for (auto &chunk : request.chunks) {
		if (chunk->GetTypes() != types) {
			throw InvalidInputException("SEND_DATA for stream '%s' carries columns %s, the statement expects %s", id,
			                            duckdb::StringUtil::ToString(chunk->GetTypes(), ", "),
			                            duckdb::StringUtil::ToString(types, ", "));
		}
	}
}

void ClientStream::PromoteLocked() {
	while (received.erase(received_up_to + 1) != 0) {
		received_up_to++;
	}
	while (!early.empty() && early.begin()->first <= received_up_to) {
		ready.push_back(std::move(early.begin()->second));
		early.erase(early.begin());
	}
}

void ClientStream::AcceptLocked(uint64_t batch_index, Batch batch) {
	received.insert(batch_index);
	buffered_bytes += batch.bytes;
	admission.AddBytes(batch.bytes);
	if (ordered) {
		early.emplace(batch_index, std::move(batch));
	} else {
		ready.push_back(std::move(batch));
	}
	PromoteLocked();
}

void ClientStream::WakeScans(std::unique_lock<std::mutex> &guard) {
	std::vector<duckdb::InterruptState> wake;
	wake.swap(parked);
	changed.notify_all();
	guard.unlock();
	for (auto &scan : wake) {
		scan.Callback();
	}
}

void ClientStream::Push(SendDataRequest request, size_t bytes, MonotonicNs timeout) {
	CheckTypes(request);
	Batch batch;
	batch.bytes = bytes;
	for (auto &chunk : request.chunks) {
		SplitIntoVectors(std::move(chunk), batch.chunks);
	}
	auto index = request.batch_index.IsValid() ? request.batch_index.GetIndex() : 0;
	if (index == 0 && !batch.chunks.empty()) {
		throw InvalidInputException("SEND_DATA_REQUEST is missing its batch index");
	}
	std::unique_lock<std::mutex> guard(lock);
	auto can_go_on = [&] {
		return ended || !aborted.IsOk() || index == 0 || IsKnownLocked(index) || HasRoomLocked(index, bytes);
	};
	auto deadline = SystemClock().Now() + timeout;
	while (!can_go_on() && SystemClock().Now() < deadline) {
		changed.wait_for(guard, ROOM_POLL_INTERVAL); // nobody tells when other streams made room
	}
	if (!can_go_on()) {
		throw InvalidInputException("SEND_DATA for stream '%s' waited too long for the statement to read; send the "
		                            "batch "
		                            "again",
		                            id);
	}
	if (failed) {
		auto copy = failure;
		guard.unlock();
		ThrowErrorResponse(copy);
	}
	if (!aborted.IsOk()) {
		ThrowCoded(Status(aborted.Code(), "stream '" + id + "' was aborted: " + aborted.Message()));
	}
	if (ended) {
		return;
	}
	if (request.total_batches.IsValid()) {
		total_batches = request.total_batches;
	}
	// A terminal message without rows still names the batch after the last one on some clients: its index is no batch.
	if (index != 0 && !IsKnownLocked(index) && !(batch.chunks.empty() && request.total_batches.IsValid())) {
		AcceptLocked(index, std::move(batch));
	}
	WakeScans(guard);
}

ClientStream::TakeResult ClientStream::Take(const duckdb::InterruptState *interrupt,
                                            duckdb::unique_ptr<DataChunk> &out) {
	std::unique_lock<std::mutex> guard(lock);
	while (true) {
		if (!aborted.IsOk()) {
			throw duckdb::InterruptException();
		}
		while (!ready.empty() && ready.front().chunks.empty()) {
			RemoveBytesLocked(ready.front().bytes);
			ready.pop_front();
			changed.notify_all();
		}
		if (!ready.empty()) {
			auto &front = ready.front();
			out = std::move(front.chunks.front());
			front.chunks.erase(front.chunks.begin());
			return TakeResult::Chunk;
		}
		if (total_batches.IsValid() && received_up_to >= total_batches.GetIndex()) {
			return TakeResult::End;
		}
		if (interrupt != nullptr && interrupt->CanCallback()) {
			parked.push_back(*interrupt);
			return TakeResult::Blocked;
		}
		changed.wait(guard);
	}
}

void ClientStream::Abort(const Status &reason) {
	std::unique_lock<std::mutex> guard(lock);
	if (aborted.IsOk()) {
		aborted = reason;
	}
	WakeScans(guard);
}

void ClientStream::StatementEnded(const ErrorResponse *error) {
	std::unique_lock<std::mutex> guard(lock);
	ended = true;
	if (error != nullptr && !failed) {
		failed = true;
		failure = *error;
	}
	early.clear();
	ready.clear();
	RemoveBytesLocked(buffered_bytes);
	WakeScans(guard);
}

bool ClientStream::IsEnded() const {
	std::lock_guard<std::mutex> guard(lock);
	return ended;
}

namespace {

struct StreamBindData final : public duckdb::TableFunctionData {
	std::shared_ptr<ClientStream> stream;
};

struct StreamGlobalState final : public duckdb::GlobalTableFunctionState {
	explicit StreamGlobalState(duckdb::idx_t threads_p) : threads(threads_p) {
	}
	duckdb::idx_t MaxThreads() const override {
		return threads;
	}
	duckdb::idx_t threads;
};

duckdb::unique_ptr<duckdb::FunctionData> BindStream(duckdb::ClientContext &context,
                                                    duckdb::TableFunctionBindInput &input,
                                                    duckdb::vector<duckdb::LogicalType> &return_types,
                                                    duckdb::vector<duckdb::Identifier> &names) {
	auto *session = Session::TryGet(context);
	if (session == nullptr) {
		throw duckdb::BinderException(
		    "scan_data_from_quack_client reads rows that a Quack client sends; it can only be "
		    "used in a statement of such a client");
	}
	auto &shape = input.inputs[1].type();
	if (shape.id() != duckdb::LogicalTypeId::STRUCT || input.inputs[0].IsNull()) {
		throw duckdb::
		    BinderException("scan_data_from_quack_client('stream id', NULL::STRUCT(column type, ...)) expected, "
			                "got a second argument of type %s",
			                shape.ToString());
	}
	for (auto &child : duckdb::StructType::GetChildTypes(shape)) {
		names.push_back(child.first);
		return_types.push_back(child.second);
	}
	bool ordered = true;
	auto entry = input.named_parameters.find("ordered");
	if (entry != input.named_parameters.end() && !entry->second.IsNull()) {
		ordered = entry->second.GetValue<bool>();
	}
	auto data = duckdb::make_uniq<StreamBindData>();
	data->stream = session->OpenStream(input.inputs[0].GetValue<std::string>(), return_types, ordered);
	return std::move(data);
}

duckdb::unique_ptr<duckdb::GlobalTableFunctionState> InitStream(duckdb::ClientContext &,
                                                                duckdb::TableFunctionInitInput &input) {
	auto &data = input.bind_data->Cast<StreamBindData>();
	return duckdb::make_uniq<StreamGlobalState>(data.stream->IsOrdered() ? 1 : 4);
}

void ScanStream(duckdb::ClientContext &, duckdb::TableFunctionInput &input, DataChunk &output) {
	auto &data = input.bind_data->Cast<StreamBindData>();
	auto can_block = input.results_execution_mode == duckdb::AsyncResultsExecutionMode::TASK_EXECUTOR;
	duckdb::unique_ptr<DataChunk> chunk;
	switch (data.stream->Take(can_block ? input.interrupt_state.get() : nullptr, chunk)) {
	case ClientStream::TakeResult::Chunk:
		output.Reference(*chunk);
		break;
	case ClientStream::TakeResult::Blocked:
		input.async_result = duckdb::AsyncResultType::BLOCKED;
		break;
	case ClientStream::TakeResult::End:
		break;
	}
}

} // namespace

void RegisterClientStreamFunction(duckdb::ExtensionLoader &loader) {
	duckdb::TableFunction function("scan_data_from_quack_client",
	                               {duckdb::LogicalType::VARCHAR, duckdb::LogicalType::ANY}, ScanStream, BindStream,
	                               InitStream);
	function.GetSignature().AddKeywordOnly("ordered", duckdb::LogicalType::BOOLEAN, duckdb::Value::BOOLEAN(true));
	loader.RegisterFunction(function);
}

} // namespace sql
} // namespace quack
