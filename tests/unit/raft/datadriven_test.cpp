//! Goal: each rule of the protocol has a scenario that reads as a timeline. Method: every tests/datadriven/*.txt is run
//! and its printed output compared with what the file says; REWRITE=1 writes what came out instead.
#include <cstdlib>
#include <filesystem>

#include "datadriven/scenario.hpp"

using namespace quack::raft::testing;

namespace {

struct ScenarioOutcome {
	std::string actual;          //! the whole file with the output that came
	size_t first_difference = 0; //! line number, 0 = none
	std::string got;
	std::string wanted;
};

//! Runs the command lines of one block, up to "----" or an empty line; returns what they printed, "ok" for nothing.
std::string RunBlock(Scenario &scenario, std::vector<std::string> &commands) {
	std::string got;
	for (auto &command : commands) {
		INFO("command: " << command);
		got += scenario.Run(command);
	}
	commands.clear();
	return got.empty() ? "ok\n" : got;
}

ScenarioOutcome RunFile(const std::string &text) {
	ScenarioOutcome outcome;
	Scenario scenario;
	std::istringstream in(text);
	std::vector<std::string> commands;
	size_t number = 0;
	size_t block_number = 0;
	std::string line;
	bool more = true;
	while (more) {
		more = static_cast<bool>(std::getline(in, line));
		number++;
		bool ends_block = !more || line.empty() || line == "----";
		if (!ends_block) {
			outcome.actual += line + "\n";
			if (line[0] != '#') {
				block_number = commands.empty() ? number : block_number;
				commands.push_back(line);
			}
			continue;
		}
		if (commands.empty()) {
			outcome.actual += more ? "\n" : "";
			continue;
		}
		std::string wanted;
		for (bool in_output = line == "----"; in_output && std::getline(in, line) && !line.empty(); number++) {
			wanted += line + "\n";
		}
		number++;
		auto got = RunBlock(scenario, commands);
		outcome.actual += "----\n" + got + "\n";
		if (got != wanted && outcome.first_difference == 0) {
			outcome.first_difference = block_number;
			outcome.got = got;
			outcome.wanted = wanted;
		}
	}
	while (outcome.actual.size() > 1 && outcome.actual.substr(outcome.actual.size() - 2) == "\n\n") {
		outcome.actual.pop_back();
	}
	return outcome;
}

} // namespace

TEST_CASE("scenarios print what their files say") {
	size_t count = 0;
	for (auto &item : std::filesystem::directory_iterator(std::string(QUACK_TESTS_DIR) + "/datadriven")) {
		if (item.path().extension() != ".txt") {
			continue;
		}
		count++;
		CAPTURE(item.path().filename().string());
		std::ifstream in(item.path());
		std::stringstream text;
		text << in.rdbuf();
		auto outcome = RunFile(text.str());
		if (std::getenv("REWRITE") != nullptr) {
			std::ofstream(item.path()) << outcome.actual;
			continue;
		}
		CHECK_MESSAGE(outcome.first_difference == 0, "line " << outcome.first_difference << " printed\n"
		                                                     << outcome.got << "but the file says\n"
		                                                     << outcome.wanted);
	}
	CHECK(count > 0);
}
