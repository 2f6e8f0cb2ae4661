#include "graph.h"

#include <algorithm>

namespace sim {

unsigned Capture::add_line() {
    const std::lock_guard lock(mutex);
    lines.push_back(0);
    return (unsigned)lines.size() - 1;
}

void Capture::add(Node node, unsigned line, std::vector<unsigned>& clock) {
    const std::lock_guard lock(mutex);
    parts.push_back(Part{std::move(node), line, clock});
    lines[line]++;
    if (clock.size() <= line) clock.resize(line + 1, 0);
    clock[line] = lines[line];
}

bool Capture::joined(const std::vector<unsigned>& clock) const {
    const std::lock_guard lock(mutex);
    for (size_t line = 0; line < lines.size(); line++) {
        if (lines[line] > (line < clock.size() ? clock[line] : 0)) return false;
    }
    return true;
}

std::vector<Part> Capture::take_parts() {
    const std::lock_guard lock(mutex);
    return std::move(parts);
}

void join_clock(std::vector<unsigned>& clock, const std::vector<unsigned>& other) {
    if (clock.size() < other.size()) clock.resize(other.size(), 0);
    for (size_t line = 0; line < other.size(); line++) clock[line] = std::max(clock[line], other[line]);
}

Graph::Graph(std::vector<Part> all)
    : parts(std::make_shared<const std::vector<Part>>(std::move(all))), nodes(std::make_shared<std::vector<NodeHandle>>(parts->size())) {}

size_t GraphExec::number_of(const void* handle) const {
    size_t number = 0;
    while (number < nodes->size() && &(*nodes)[number] != handle) number++;
    return number;
}

UpdateResult compare(const std::vector<Part>& old, const std::vector<Part>& from, size_t& number) {
    number = 0;
    if (old.size() != from.size()) return UPDATE_TOPOLOGY_CHANGED;
    for (; number < old.size(); number++) {
        if (old[number].line != from[number].line || old[number].clock != from[number].clock) return UPDATE_TOPOLOGY_CHANGED;
        if (old[number].node.index() != from[number].node.index()) return UPDATE_NODE_TYPE_CHANGED;
    }
    return UPDATE_SUCCESS;
}

NodeType type_of(const Node& node) {
    if (std::holds_alternative<KernelNode>(node)) return NODE_KERNEL;
    if (std::holds_alternative<CopyNode>(node)) return NODE_COPY;
    if (std::holds_alternative<SetNode>(node)) return NODE_SET;
    if (std::holds_alternative<HostNode>(node)) return NODE_HOST;
    return std::holds_alternative<GraphNode>(node) ? NODE_GRAPH : NODE_EMPTY;
}

}  // namespace sim
