// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/deferred_gradients.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/engine.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

using Node = torch::autograd::Node;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

/// Later parts that share parameters.
struct DeferredGradients::Work {
  int64_t microbatch = 0;
  std::vector<torch_compat::NodePtr> nodes;
  std::vector<at::Tensor> gradients;  ///< of the nodes' one output each; undefined: nothing came
  std::vector<int64_t> versions;      ///< of these, when they came
  size_t first_parts_done = 0;
  bool recomputed = false;  ///< keeps what went through hooks
};

/// Work whose first parts are all done, by microbatch and in the order of that: the oldest
/// microbatch makes room for the next one.
struct DeferredGradients::Queue {
  std::map<int64_t, std::deque<std::shared_ptr<Work>>> ready;
  std::map<int64_t, DeferredWork> counts;

  void add(std::shared_ptr<Work> work) {
    DeferredWork& count = counts[work->microbatch];
    ++count.left;
    if (work->recomputed) ++count.recomputed;
    ready[work->microbatch].push_back(std::move(work));
  }
};

namespace {

/// Number of changes in place; always 0 for tensors that do not count them.
int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

}  // namespace

/// Stands in the graph for a node with edges of both kinds, and does its first part.
class DeferredGradients::Part : public Node {
 public:
  /// `late`: by edge of `whole`, true where it is of the later part. `saved`: by the node, and by
  /// those that its later part leads to.
  Part(torch_compat::NodePtr whole, std::vector<bool> late, std::vector<NodeTensors> saved)
      : Node(whole->sequence_nr(), without(whole->next_edges(), late)),
        whole_(std::move(whole)),
        late_(std::move(late)),
        saved_(std::move(saved)) {
    for (uint32_t input = 0; input < whole_->num_inputs(); ++input) {
      input_metadata_.emplace_back(whole_->input_metadata(input));
    }
  }

  void leave_to(std::shared_ptr<Work> work, std::shared_ptr<Queue> queue) {
    work_ = std::move(work);
    queue_ = std::move(queue);
    place_ = work_->nodes.size();
    work_->nodes.emplace_back();
    work_->gradients.emplace_back();
    work_->versions.emplace_back();
  }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor gradient = gradients[0];
    variable_list results(late_.size());
    if (gradient.defined()) {
      for (const NodeTensors& saved : saved_) {
        if (saved.unpack()) work_->recomputed = true;
      }
      edge_list& edges = whole_->next_edges();
      edge_list early = without(edges, late_);
      if (std::ranges::any_of(early, &Edge::is_valid)) {
        edges.swap(early);
        results = (*whole_)(std::move(gradients));
        edges.swap(early);
      }
      for (size_t edge = 0; edge < late_.size(); ++edge) {
        if (!late_[edge]) edges[edge] = Edge();
      }
      work_->nodes[place_] = std::move(whole_);
      work_->gradients[place_] = gradient;
      work_->versions[place_] = version_of(gradient);
    }
    if (++work_->first_parts_done == work_->nodes.size()) queue_->add(work_);
    whole_ = {};
    saved_.clear();
    work_ = {};
    queue_ = {};
    return results;
  }

  [[nodiscard]] std::string name() const override { return "FirstPart"; }
  void release_variables() override {}

 private:
  static edge_list without(const edge_list& edges, const std::vector<bool>& late) {
    edge_list rest = edges;
    for (size_t edge = 0; edge < rest.size(); ++edge) {
      if (late[edge]) rest[edge] = Edge();
    }
    return rest;
  }

  torch_compat::NodePtr whole_;
  const std::vector<bool> late_;
  std::vector<NodeTensors> saved_;
  std::shared_ptr<Work> work_;
  std::shared_ptr<Queue> queue_;
  size_t place_ = 0;
};

namespace {

/// Sets of numbers that have been joined.
class Groups {
 public:
  size_t add() {
    parents_.push_back(parents_.size());
    return parents_.size() - 1;
  }
  size_t of(size_t number) {
    while (parents_[number] != number) {
      number = parents_[number] = parents_[parents_[number]];
    }
    return number;
  }
  void join(size_t one, size_t other) { parents_[of(one)] = of(other); }

 private:
  std::vector<size_t> parents_;
};

/// The nodes below `roots`, each behind those that it leads to.
std::vector<Node*> in_order(const edge_list& roots) {
  struct Visit {
    Node* node;
    size_t next = 0;
  };
  std::vector<Node*> order;
  std::unordered_set<Node*> seen;
  std::vector<Visit> way;
  const auto enter = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) {
      way.push_back({.node = edge.function.get()});
    }
  };
  for (const Edge& root : roots) {
    enter(root);
    while (!way.empty()) {
      Visit& visit = way.back();
      if (visit.next < visit.node->num_outputs()) {
        enter(visit.node->next_edge(visit.next++));
        continue;
      }
      order.push_back(visit.node);
      way.pop_back();
    }
  }
  return order;
}

edge_list late_edges(const Node& node, const auto& is_late) {
  edge_list result;
  std::ranges::copy_if(node.next_edges(), std::back_inserter(result), is_late);
  return result;
}

}  // namespace

DeferredGradients::DeferredGradients(Leaves leaves, Saved saved)
    : leaves_(std::move(leaves)), saved_(std::move(saved)), queue_(std::make_shared<Queue>()) {}

DeferredGradients::Works DeferredGradients::split(
    int64_t microbatch, edge_list& roots,
    const std::function<void(std::string_view)>& not_later) const {
  const auto say = [&](std::string_view why) {
    if (not_later) not_later(why);
  };
  const std::vector<Node*> order = in_order(roots);
  // What leads to parameters alone, and which of it belongs together. It ends at a separable node,
  // which has its input from a batch where it leads to nothing else.
  std::unordered_map<Node*, size_t> late;  // group by node
  Groups groups;
  const auto is_late = [&](const Edge& edge) {
    return edge.is_valid() && late.contains(edge.function.get());
  };
  const auto is_early = [&](const Edge& edge) {
    return edge.is_valid() && !late.contains(edge.function.get());
  };
  for (Node* node : order) {
    const edge_list& edges = node->next_edges();
    const bool leads_to_parameters = std::ranges::any_of(edges, is_late) &&
                                     std::ranges::none_of(edges, is_early) && !has_hooks(*node) &&
                                     !saved_by_separable(*node);
    if (!leads_to_parameters) {
      const Leaf leaf = leaves_(*node);
      if (leaf == Leaf::kHooked) say("a hook on a parameter is to see its gradients");
      if (leaf != Leaf::kParameter) continue;
    }
    const size_t group = late[node] = groups.add();
    for (const Edge& edge : edges) {
      if (edge.is_valid()) groups.join(group, late[edge.function.get()]);
    }
  }
  if (late.empty()) return {};

  // A group that something leads to which is not split comes with the first part.
  const size_t at_once = groups.add();
  const auto pin = [&](const Edge& edge) {
    if (is_late(edge)) groups.join(late[edge.function.get()], at_once);
  };
  std::ranges::for_each(roots, pin);
  std::vector<Node*> whole;
  for (Node* node : order) {
    if (late.contains(node)) continue;
    const edge_list& edges = node->next_edges();
    if (std::ranges::none_of(edges, is_late)) continue;
    const bool is_separable = saved_by_separable(*node).has_value();
    if (node->num_inputs() != 1 || has_hooks(*node) || !is_separable) {
      std::ranges::for_each(edges, pin);
      if (is_separable && has_hooks(*node)) say("a hook is to see the gradients of a layer");
      continue;
    }
    whole.push_back(node);
    std::optional<size_t> first;  // one run of the node has all of its later part
    for (const Edge& edge : edges) {
      if (!is_late(edge)) continue;
      const size_t group = late[edge.function.get()];
      groups.join(group, first.value_or(group));
      first = group;
    }
  }

  // What passes through hooks, mostly nothing, is to do so in the first part.
  std::unordered_map<Node*, SavedTensors> saved;
  for (Node* node : whole) {
    auto found = *saved_by_separable(*node);
    if (have_hooks(found)) saved[node] = std::move(found);
  }
  std::unordered_set<size_t> unknown;  // groups, of which nobody knows what late nodes have saved
  if (!saved.empty()) {
    for (const auto& [node, group] : late) {
      if (leaves_(*node) == Leaf::kParameter || saves_nothing(*node)) continue;
      if (auto found = saved_ ? saved_(*node) : std::nullopt) {
        saved[node] = std::move(*found);
      } else {
        unknown.insert(groups.of(group));
      }
    }
  }
  for (Node* node : whole) {
    if (!saved.contains(node)) continue;
    for (const Edge& edge : node->next_edges()) {
      if (!is_late(edge) || !unknown.contains(groups.of(late[edge.function.get()]))) continue;
      pin(edge);
      say("what is computed of a parameter alone has saved tensors, which activation checkpointing "
          "or another hook would have to give a second time");
    }
  }
  const auto saved_from = [&](Node* node) {
    std::vector<NodeTensors> result;
    if (saved.empty()) return result;
    const auto add = [&](Node* one) {
      const auto found = saved.find(one);
      if (found == saved.end()) return;
      result.push_back({.node = one->getptr(), .tensors = found->second});
    };
    add(node);
    std::ranges::for_each(in_order(late_edges(*node, is_late)), add);
    return result;
  };

  std::unordered_map<Node*, torch_compat::NodePtr> parts;
  std::map<size_t, std::shared_ptr<Work>> works;  // by group
  for (Node* node : whole) {
    std::vector<bool> later;
    std::optional<size_t> group;
    for (const Edge& edge : node->next_edges()) {
      const bool is_later =
          is_late(edge) && groups.of(late[edge.function.get()]) != groups.of(at_once);
      if (is_later) group = groups.of(late[edge.function.get()]);
      later.push_back(is_later);
    }
    if (!group) continue;
    auto part = torch_compat::make_node<Part>(node->getptr(), std::move(later), saved_from(node));
    auto& work = works[*group];
    if (!work) work = std::make_shared<Work>(Work{.microbatch = microbatch});
    part->leave_to(work, queue_);
    parts.emplace(node, std::move(part));
  }
  const auto redirect = [&](Edge& edge) {
    const auto found = parts.find(edge.function.get());
    if (edge.is_valid() && found != parts.end()) edge.function = found->second;
  };
  std::ranges::for_each(roots, redirect);
  for (Node* node : order) {
    const auto found = parts.find(node);
    std::ranges::for_each((found == parts.end() ? *node : *found->second).next_edges(), redirect);
  }
  Works result;
  for (auto& [group, work] : works) result.push_back(std::move(work));
  return result;
}

void DeferredGradients::check(const Works& works) {
  for (const std::shared_ptr<Work>& work : works) {
    SMP_CHECK(work->first_parts_done == work->nodes.size(),
              "a backward is over, and has run {} of {} nodes whose parameters wait for it",
              work->first_parts_done, work->nodes.size());
  }
}

std::optional<int64_t> DeferredGradients::next() const {
  return queue_->ready.empty() ? std::nullopt : std::optional(queue_->ready.begin()->first);
}

DeferredWork DeferredGradients::of(int64_t microbatch) const {
  const auto found = queue_->counts.find(microbatch);
  return found == queue_->counts.end() ? DeferredWork{} : found->second;
}

void DeferredGradients::run_next() {
  SMP_CHECK(!queue_->ready.empty(), "there is no deferred work");
  const auto first = queue_->ready.begin();
  const std::shared_ptr<Work> work = std::move(first->second.front());
  first->second.pop_front();
  if (first->second.empty()) queue_->ready.erase(first);
  DeferredWork& count = queue_->counts[work->microbatch];
  ++count.done;
  if (work->recomputed) --count.recomputed;
  edge_list edges;
  variable_list gradients;
  for (size_t place = 0; place < work->nodes.size(); ++place) {
    if (work->nodes[place] == nullptr) continue;
    if (version_of(work->gradients[place]) != work->versions[place]) {
      throw UserCodeError(
          "a gradient that came to {} was changed in place before the gradients of its parameters "
          "were computed, by a hook or by the backward of a function of the model: expected it to "
          "return another tensor. With the pipeline \"interleaved\" all gradients of a layer are "
          "computed at once",
          work->nodes[place]->name());
    }
    edges.emplace_back(std::move(work->nodes[place]), 0);
    gradients.push_back(std::move(work->gradients[place]));
  }
  if (edges.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

void DeferredGradients::clear() {
  queue_->ready.clear();
  queue_->counts.clear();
}

}  // namespace smp::pipeline
